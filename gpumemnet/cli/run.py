"""What rad-estimate does: ask the estimator and the cluster, print, and say whether the job fits."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gpumemnet.cli import answer, report
from gpumemnet.cli.around import PROGRAM, Around, Exit
from gpumemnet.cli.cluster import Asked, Cluster, Job, Verdict
from gpumemnet.cli.question import Question, question_of
from gpumemnet.cli.report_json import as_json
from gpumemnet.cli.told import Booked, Told
from gpumemnet.directives.values import amount_of_memory
from gpumemnet.errors import GpuMemNetError, SetupError, lines_of
from gpumemnet.estimate import Estimate
from gpumemnet.estimators.registry import DEFAULT
from gpumemnet.gpus import DEFAULT_GPU, Gpu, gpu_named, gpu_of_memory
from gpumemnet.units import human

if TYPE_CHECKING:
    from gpumemnet.cli import advice

_SETTINGS = ("batch_size", "seq_len", "optimizer", "precision", "gradient_checkpointing", "confidence")


class Options(NamedTuple):
    """The options of the command that are not settings of the training; `rad-estimate --help` explains them."""

    summary: str | None
    gpu: str | None
    gpu_memory: str | None
    estimator: str | None
    module: str | None
    inputs: tuple[str, ...]
    config: Path | None
    typed: str
    ask: bool
    largest: bool
    sweep: bool
    cards: bool
    plot: str | None
    as_json: bool
    explain: bool
    sbatch: bool
    save: Path | None


def run(around: Around, /, **values: Any) -> Exit:
    """Answer, on the terminal.

    Args:
        around: What is told besides the options.
        values: The options by name.

    Returns:
        Whether the job fits.

    Raises:
        GpuMemNetError: An option or a file is wrong.
    """
    given = {name: values.pop(name) for name in _SETTINGS}
    options = Options(**values)
    stated = {name: value for name, value in given.items() if value is not None and value is not False}
    what_if = bool(options.gpu or options.gpu_memory or options.estimator)  # then no cluster is meant
    cluster = None if what_if else around.find_cluster(options.config)
    if cluster is None and (options.ask or options.config):
        why = (
            "with --gpu, --gpu-memory and --estimator no cluster is meant"
            if what_if
            else "no rad.toml is here"
        )
        raise SetupError(f"--ask and --config: {why}; leave them out")
    question = question_of(options.summary, stated, options.typed)
    if options.largest or options.sweep or options.cards or options.plot:
        return _advise(options, question, cluster)
    if cluster is None or question.job is None or options.module:
        return _of_card(options, question, around.script, cluster)
    return _of_cluster(options, question, question.job, cluster)


def _of_cluster(options: Options, question: Question, job: Job, cluster: Cluster) -> Exit:
    """Answer for a job that would be submitted here."""
    verdict = cluster.submit(job)
    asked = cluster.ask(job) if options.ask else None
    found: tuple[Estimate, tuple[str, ...]] | None = None
    fault: GpuMemNetError | None = question.fault
    if fault is None and (question.said.model or question.said.memory_bytes):
        try:
            found = _estimated(question, options, cluster.card, cluster.estimator)
        except GpuMemNetError as exc:
            fault = exc
    if found is not None and verdict.upper_bytes is not None:
        found = replace(found[0], upper_bytes=verdict.upper_bytes), found[1]
    _print(options, question, cluster.card, found, verdict, asked)
    if fault is not None and not verdict.faults:  # else sbatch's own line tells it
        _complain(*lines_of(fault))
    if verdict.refusal is not None or (asked is not None and asked.starts is None):
        return Exit.FINDINGS
    return Exit.USAGE if verdict.faults or fault is not None else Exit.FINE


def _of_card(options: Options, question: Question, script: Sequence[str], cluster: Cluster | None) -> Exit:
    """Answer for a type of GPU, wherever it is."""
    if question.fault is not None:
        raise question.fault
    card = cluster.card if cluster is not None else _card(options)
    estimator = options.estimator or (cluster.estimator if cluster is not None else DEFAULT)
    if options.module:
        if str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        setup = question.said.setup
        result = answer.for_module(
            options.module, options.inputs, setup, gpu=card, estimator=estimator, save=options.save
        )
        found: tuple[Estimate, tuple[str, ...]] = (result, ())
    elif script:
        found = answer.for_script(script, question.said.setup, gpu=card, save=options.save)
    elif options.save is not None:
        raise SetupError("--save keeps what a script or --module came to; a summary is a file already")
    else:
        found = _estimated(question, options, card, estimator)
    _print(options, question, card, found, None, None)
    result = found[0]
    if result.upper_bytes <= card.memory_bytes:
        return Exit.FINE
    asked, there = human(result.upper_bytes), human(card.memory_bytes)
    _complain(
        f"{asked} do not fit on one {card.name} of {there}; "
        "try a smaller batch size, gradient checkpointing or another precision"
    )
    return Exit.FINDINGS


def _advise(options: Options, question: Question, cluster: Cluster | None) -> Exit:
    """Print the advice that is asked for."""
    from gpumemnet.cli import advice, tables  # only advice needs them

    if question.fault is not None:
        raise question.fault
    said = replace(question.said, setup=replace(question.said.setup, input_shape=_shape(options.inputs)))
    if said.model is None:
        raise SetupError(
            "advice needs a model: name a summary, or a job script with model= in its #RAD lines"
        )
    card = cluster.card if cluster is not None else _card(options)
    estimator = options.estimator or (cluster.estimator if cluster is not None else DEFAULT)
    room = card.memory_bytes
    if cluster is not None and question.job is not None:
        room = cluster.submit(question.job).capacity_bytes or room
    subject = advice.Subject(said=said, card=card, usable_bytes=room, estimator=estimator)
    if options.plot:
        return _plot(options.plot, subject)
    if options.largest:
        name, rows = "largest", advice.largest(subject)
        fits = rows[0]["batch_size"] is not None
    elif options.sweep:
        name, rows = "sweep", advice.sweep(subject, said.setup.batch_size or answer.batch_of(said.model))
        fits = any(row["fit"] for row in rows)
    else:
        name, rows = "cards", advice.cards(subject, cluster, question.job, ask=options.ask)
        fits = any(row["fit"] for row in rows)
    click.echo(tables.as_json(name, rows) if options.as_json else tables.as_table(rows))
    return Exit.FINE if fits else Exit.FINDINGS


def _plot(where: str, subject: advice.Subject) -> Exit:
    from gpumemnet.cli import plot  # only a plot needs them
    from gpumemnet.profile.step import step_of

    setup, model = subject.said.setup, subject.said.model or ""
    result, _ = answer.for_summary(model, setup, gpu=subject.card, estimator=subject.estimator)
    course = step_of(model, setup)
    name = "the summary's own" if setup.batch_size is None else str(setup.batch_size)
    title = f"One training step: batch size {name}, {setup.optimizer}, {setup.precision}"
    base_bytes = result.breakdown_bytes.get("base", 0)
    if where == "-":
        click.echo(plot.as_text(course, base_bytes, title))
    else:
        plot.write(course, base_bytes, title, Path(where))
    return Exit.FINE


def _estimated(
    question: Question, options: Options, card: Gpu, estimator: str
) -> tuple[Estimate, tuple[str, ...]]:
    """Return what the job needs; what the user states outright wins over what the model says."""
    said = question.said
    if said.memory_bytes is not None:
        return answer.stated(said.memory_bytes, card), ()
    if said.model is None:
        if question.job is None:
            raise SetupError("name a model summary, a job script, or --module; see --help")
        where = question.job.path or "standard input"
        raise SetupError(
            f"{where}: no model= and no memory= in its #RAD lines; add #RAD model=FILE batch_size=N"
        )
    setup = replace(said.setup, input_shape=_shape(options.inputs))
    return answer.for_summary(said.model, setup, gpu=card, estimator=estimator)


def _print(
    options: Options,
    question: Question,
    card: Gpu,
    found: tuple[Estimate, tuple[str, ...]] | None,
    verdict: Verdict | None,
    asked: Asked | None,
) -> None:
    said = question.said
    result, warnings = found or (None, ())
    if said.confidence == "auto" and verdict is None:
        warnings = (*warnings, "confidence=auto: the partition decides what is booked; the bound is shown")
    booked = None
    if result is not None:
        booked = Booked.of(result, None if isinstance(said.confidence, str) else said.confidence)
        booked = booked if verdict is None else booked.in_cluster(verdict)
    told = Told(
        result=result, booked=booked, card=card, said=said, warnings=warnings, verdict=verdict, asked=asked
    )
    form = report.as_text
    for wanted, other in (
        (options.sbatch, report.as_sbatch),
        (options.explain, report.as_explanation),
        (options.as_json, as_json),
    ):
        form = other if wanted else form
    click.echo(form(told))


def _complain(*lines: str) -> None:
    for line in lines:
        click.echo(f"{click.style(PROGRAM + ':', fg='red')} {' '.join(line.split())}", err=True)


def _card(options: Options) -> Gpu:
    """Return the type of GPU that the options name; one that nobody knows needs its memory.

    Raises:
        SetupError: It is not known, or its memory is no amount.
    """
    if options.gpu_memory is None:
        return gpu_named(options.gpu or DEFAULT_GPU)
    return gpu_of_memory(options.gpu or "card", amount_of_memory(options.gpu_memory, "--gpu-memory"))


def _shape(inputs: tuple[str, ...]) -> tuple[int, ...] | None:
    if not inputs:
        return None
    words = inputs[0].lower().split("x")
    if len(inputs) > 1 or not all(word.isascii() and word.isdigit() and int(word[:12]) > 0 for word in words):
        raise SetupError(f"--input {inputs[0][:40]} is not a shape; write for example --input 128x3x224x224")
    return tuple(int(word) for word in words)
