"""Main work of rad-estimate: query the estimator and the cluster, print, and report whether the job fits."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpumemnet.cli import answer, report
from gpumemnet.cli.cluster import ConfiguredCluster, HypotheticalJob, SbatchAnswer, Scheduled
from gpumemnet.cli.invocation import EstimateExit, Invocation
from gpumemnet.cli.options import Options, gpu_model_of, shape_of
from gpumemnet.cli.question import Question, question_of
from gpumemnet.cli.report_json import as_json
from gpumemnet.cli.reported import Booked, Reported
from gpumemnet.cli.terminal import complain, note, say
from gpumemnet.errors import GpuMemNetError, SetupError, lines_of
from gpumemnet.estimate import Estimate
from gpumemnet.estimators.registry import DEFAULT
from gpumemnet.gpus import Gpu
from gpumemnet.records import replace
from gpumemnet.units import human

_NOTHING_SAID = (
    "the memory need of its model is unknown; add #RAD model=m.rad,"
    " made by: rad-estimate --save m.rad -- python train.py"
)
_NO_INPUT = (
    "a job cannot state --input, so sbatch books for the input that it assumes; save torchinfo's summary with its "
    "input instead, or trace the script"
)
_SETTINGS = ("batch_size", "seq_len", "optimizer", "precision", "gradient_checkpointing", "confidence")


def run(invocation: Invocation, /, **values: Any) -> EstimateExit:
    """Print the answer on the terminal.

    Args:
        invocation: The script after `--`, and the search for the cluster.
        values: Values of the options, by name; those left out have their defaults.

    Returns:
        Whether the job fits.

    Raises:
        GpuMemNetError: An option or a file is wrong.
    """
    given = {name: values.pop(name, None) for name in _SETTINGS}
    options = Options(**values)
    stated = {name: value for name, value in given.items() if value is not None and value is not False}
    what_if = bool(options.gpu or options.gpu_memory or options.estimator)  # then the cluster is ignored
    cluster = None if what_if else invocation.find_cluster(options.config)
    if cluster is None and (options.ask or options.config):
        why = (
            "--gpu, --gpu-memory and --estimator estimate without a cluster"
            if what_if
            else "there is no rad.toml"
        )
        raise SetupError(f"--ask and --config: {why}; leave them out")
    if options.ask and options.inputs:
        raise SetupError("--ask asks about a job, which cannot state --input; leave one of both out")
    question = question_of(options.summary, stated, options.typed)
    if options.largest or options.sweep or options.compare or options.plot:
        from gpumemnet.cli.run_advice import advise  # rarely used

        return advise(options, question, cluster)
    if cluster is None or question.job is None or options.module or options.inputs:
        return _for_gpu(options, question, invocation.script, cluster, stated)
    return _of_cluster(options, question, question.job, cluster)


def _of_cluster(
    options: Options, question: Question, job: HypotheticalJob, cluster: ConfiguredCluster
) -> EstimateExit:
    """Print the answer for a job submitted to this cluster."""
    submitted = cluster.submit(job)
    scheduled = cluster.ask(job) if options.ask else None
    found: tuple[Estimate, tuple[str, ...]] | None = None
    fault: GpuMemNetError | None = question.fault
    notes: tuple[str, ...] = ()
    if fault is None and (question.directives.model or question.directives.memory_bytes):
        try:
            found = _estimated(question, options, cluster.gpu_model, cluster.estimator)
        except GpuMemNetError as exc:
            fault = exc
    elif fault is None and submitted.decision == "exclusive" and question.directives.policy is None:
        notes = (_NOTHING_SAID,)
    if found is not None and submitted.upper_bytes is not None:
        found = found[0]._replace(upper_bytes=submitted.upper_bytes), found[1]
    _print(options, question, cluster.gpu_model, found, submitted, scheduled, notes)
    if fault is not None:
        complain(*_beyond(lines_of(fault), submitted))
    if submitted.refusal is not None or (scheduled is not None and scheduled.starts is None):
        return EstimateExit.FINDINGS
    return EstimateExit.USAGE if submitted.faults or fault is not None else EstimateExit.FINE


def _beyond(lines: Sequence[str], submitted: SbatchAnswer) -> tuple[str, ...]:
    """Return the lines that sbatch does not report; it names scripts by their full path."""
    if not submitted.faults:
        return tuple(lines)
    return tuple(
        line for line in lines if not any(line.partition(": ")[2] in text for text in submitted.messages)
    )


def _for_gpu(
    options: Options,
    question: Question,
    script: Sequence[str],
    cluster: ConfiguredCluster | None,
    stated: Mapping[str, object],
) -> EstimateExit:
    """Print the answer for a type of GPU, independent of a cluster."""
    if question.fault is not None:
        raise question.fault
    gpu_model = cluster.gpu_model if cluster is not None else gpu_model_of(options)
    estimator = options.estimator or (cluster.estimator if cluster is not None else DEFAULT)
    if options.module:
        if str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        setup = question.directives.setup
        result = answer.for_module(
            options.module, options.inputs, setup, gpu=gpu_model, estimator=estimator, save=options.save
        )
        found: tuple[Estimate, tuple[str, ...]] = (result, ())
    elif script:
        _wait(script)
        found = answer.for_script(script, question.directives.setup, gpu=gpu_model, save=options.save)
    elif options.save is not None:
        raise SetupError("--save needs a script or --module; a summary is a file already")
    else:
        found = _estimated(question, options, gpu_model, estimator)
        if options.inputs and cluster is not None:
            found = found[0], (_NO_INPUT, *found[1])
    if cluster is not None and options.save is not None and answer.FROM_TEXT not in found[1]:
        saved = question_of(str(options.save), stated, options.typed)
        if saved.job is not None:
            return _of_cluster(options, saved, saved.job, cluster)
    _print(options, question, gpu_model, found, None, None, ())
    needed = Booked.of(found[0], question.directives.confidence).n_bytes  # as sbatch decides; not the bound
    if needed <= gpu_model.memory_bytes:
        return EstimateExit.FINE
    scheduled, there = human(needed), human(gpu_model.memory_bytes)
    complain(
        f"{scheduled} does not fit on one {gpu_model.name} of {there}; "
        "try a smaller batch size, gradient checkpointing or another precision"
    )
    return EstimateExit.FINDINGS


def _wait(script: Sequence[str]) -> None:
    """Print a note about the wait; most of it is the start of Python and PyTorch."""
    if sys.stderr.isatty():
        line = f"{shlex.join(script)} is traced on a simulated GPU until its second step; at most 5 minutes"
        note(line)


def _estimated(
    question: Question, options: Options, gpu_model: Gpu, estimator: str
) -> tuple[Estimate, tuple[str, ...]]:
    """Return the job's estimate; memory stated by the user overrides the model's."""
    directives = question.directives
    if directives.memory_bytes is not None:
        return answer.stated(directives.memory_bytes, gpu_model), ()
    if directives.model is None:
        if question.job is None:
            raise SetupError("name a model summary, a job script, or --module; see --help")
        where = question.job.path or "standard input"
        raise SetupError(
            f"{where}: no model= and no memory= in its #RAD lines; add #RAD model=FILE batch_size=N"
        )
    setup = replace(directives.setup, input_shape=shape_of(options.inputs))
    return answer.for_summary(directives.model, setup, gpu=gpu_model, estimator=estimator)


def _print(
    options: Options,
    question: Question,
    gpu_model: Gpu,
    found: tuple[Estimate, tuple[str, ...]] | None,
    submitted: SbatchAnswer | None,
    scheduled: Scheduled | None,
    notes: tuple[str, ...],
) -> None:
    directives = question.directives
    result, warnings = found or (None, notes)
    booked = None
    if result is not None:
        booked = Booked.of(result, directives.confidence)
        booked = booked if submitted is None else booked.in_cluster(submitted)
    reported = Reported(
        result=result,
        booked=booked,
        gpu_model=gpu_model,
        directives=directives,
        warnings=warnings,
        submitted=submitted,
        scheduled=scheduled,
        made=answer.made_by(directives.model) if options.explain and directives.model and result else "",
    )
    form = report.as_text
    for wanted, other in (
        (options.sbatch, report.as_sbatch),
        (options.explain, report.as_explanation),
        (options.as_json, as_json),
    ):
        form = other if wanted else form
    say(form(reported))
