"""`rad-estimate --largest`, `--sweep`, `--compare` and `--plot`: several answers at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpumemnet.cli import answer
from gpumemnet.cli.cluster import ConfiguredCluster
from gpumemnet.cli.invocation import EstimateExit
from gpumemnet.cli.options import Options, gpu_model_of, shape_of
from gpumemnet.cli.question import Question
from gpumemnet.cli.terminal import note
from gpumemnet.errors import SetupError
from gpumemnet.estimators.registry import DEFAULT

if TYPE_CHECKING:
    from gpumemnet.cli import advice, retrace


def advise(options: Options, question: Question, cluster: ConfiguredCluster | None) -> EstimateExit:
    """Print the requested advice.

    Args:
        options: The options.
        question: The job's directives.
        cluster: The cluster of this machine, if there is one.

    Raises:
        SetupError: There is no model, or no advice is possible for it.
    """
    from gpumemnet.cli import advice, retrace, tables  # only advice needs them

    if question.fault is not None:
        raise question.fault
    directives = question.directives._replace(
        setup=replace(question.directives.setup, input_shape=shape_of(options.inputs))
    )
    if directives.model is None:
        raise SetupError(
            "advice needs a model: name a summary, or a job script with model= in its #RAD lines"
        )
    gpu_model = cluster.gpu_model if cluster is not None else gpu_model_of(options)
    estimator = options.estimator or (cluster.estimator if cluster is not None else DEFAULT)
    submitted = cluster.submit(question.job) if cluster is not None and question.job is not None else None
    subject = advice.Subject(
        directives=directives,
        gpu_model=gpu_model,
        usable_bytes=(submitted and submitted.capacity_bytes) or gpu_model.memory_bytes,
        estimator=estimator,
        shards=(submitted and submitted.shards) or 0,
        shard_bytes=(submitted and submitted.shard_bytes) or 0,
    )
    if options.plot:
        return plot_step(options.plot, subject)
    saved = None if options.compare and not options.largest else retrace.saved_in(directives.model)
    if saved is not None:
        name, rows = of_trace(options, subject, retrace.Retraced(saved, directives.model))
        fits = any(row["batch_size"] is not None and row.get("fit", 1) for row in rows)
    elif options.largest:
        name, rows = "largest", advice.largest(subject)
        fits = rows[0]["batch_size"] is not None
    elif options.sweep:
        name, rows = (
            "sweep",
            advice.sweep(subject, directives.setup.batch_size or answer.batch_of(directives.model)),
        )
        fits = any(row["fit"] for row in rows)
    else:
        name, rows = "gpus", advice.compare(subject, cluster, question.job, ask=options.ask)
        fits = any(row["fit"] for row in rows)
    click.echo(tables.as_json(name, rows) if options.as_json else tables.as_table(rows))
    return EstimateExit.FINE if fits else EstimateExit.FINDINGS


def of_trace(
    options: Options, subject: advice.Subject, traced: retrace.Retraced
) -> tuple[str, list[advice.Row]]:
    """Return the name and the rows of advice about a saved profile; its command is traced at other batch sizes.

    Args:
        options: The options.
        subject: The model.
        traced: Its profiles.
    """
    from gpumemnet.cli import advice

    def of(text: str) -> advice.Subject:
        return replace(subject, directives=subject.directives._replace(model=text))

    def booked_bytes(text: str, batch_size: int) -> int:
        setup = replace(subject.directives.setup, batch_size=batch_size)
        return of(text).booked(setup)[1].n_bytes

    if options.largest:
        least_bytes = subject.part_bytes(advice.PARTS[-1])
        if not traced.around(booked_bytes, least_bytes, subject.usable_bytes):
            note(f"no batch size above {traced.sizes[-1]} was traced; a larger one may fit")
        return "largest", advice.largest(of(traced.saved.to_text()), traced.sizes)
    wanted = advice.around(subject.directives.setup.batch_size or traced.saved.batch_size)
    there = [size for size in wanted if traced.add(size) or traced.sizes[0] <= size <= traced.sizes[-1]]
    return "sweep", advice.sweep_sizes(of(traced.saved.to_text()), there)


def plot_step(where: str, subject: advice.Subject) -> EstimateExit:
    """Plot memory over one step; that of a saved profile is traced again.

    Args:
        where: A file, or "-" for the terminal.
        subject: The model and its setup.
    """
    from gpumemnet.cli import plot, retrace  # only a plot needs them
    from gpumemnet.profile.step import step_of

    setup, model = subject.directives.setup, subject.directives.model or ""
    result, _ = answer.for_summary(model, setup, gpu=subject.gpu_model, estimator=subject.estimator)
    saved = retrace.saved_in(model)
    if saved is None:
        course = step_of(model, setup)
        name = "the summary's own" if setup.batch_size is None else str(setup.batch_size)
        optimizer, precision = setup.optimizer, setup.precision
    else:
        batch_size = setup.batch_size or saved.batch_size
        course = retrace.course_of(saved, model, batch_size)
        profile = saved.profiles[0]
        name, optimizer, precision = str(batch_size), profile.optimizer, profile.precision
    title = f"One training step: batch size {name}, {optimizer}, {precision}"
    base_bytes = result.breakdown_bytes.get("base", 0)
    if where == "-":
        click.echo(plot.as_text(course, base_bytes, title))
    else:
        plot.write(course, base_bytes, title, Path(where))
    return EstimateExit.FINE
