"""Choose the estimator for the user's input: the text of a summary, or a module to trace."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpumemnet.errors import GpuMemNetError, SetupError, TraceError
from gpumemnet.estimate import Estimate
from gpumemnet.estimators import activity
from gpumemnet.estimators.registry import DEFAULT, LAYERS, MODULE, estimate
from gpumemnet.gpus import Gpu, gpu_named
from gpumemnet.names import Family, Source
from gpumemnet.profile.build import build_profile, profile_with_warnings
from gpumemnet.profile.record import ModelProfile
from gpumemnet.summaries.texts.read import read
from gpumemnet.training import TrainingSetup

if TYPE_CHECKING:
    from gpumemnet.tracing.saved.record import SavedProfile

FROM_TEXT = "estimated from its model's text instead"
"""Warning of an estimate without a trace."""
_NO_PYTHON = "name the Python that trains before it: rad-estimate {}-- python "
_NO_TORCH = (
    "; run it where it trains: after `conda activate` or `module load`, or by that environment's own python"
)
_NO_MODULE = (
    f"--module runs in rad-estimate's own Python, {sys.executable}, which has no PyTorch; install rad-slurm in the "
    "environment that trains and take its rad-estimate, or trace the whole script: "
    "rad-estimate --save m.rad -- python train.py"
)


def for_summary(
    path_or_text: str, setup: TrainingSetup, *, gpu: str | Gpu, estimator: str = DEFAULT
) -> tuple[Estimate, tuple[str, ...]]:
    """Estimate from a summary or a saved profile.

    Args:
        path_or_text: A file's path, or the text (recognized by a line break).
        setup: The training setup.
        gpu: Type of GPU, by name or as a record.
        estimator: One of `gpumemnet.estimators.registry.NAMES`.

    Returns:
        The estimate, and warnings about guesses.

    Raises:
        SummaryError: The file or the text is unusable.
        SetupError: The setup is impossible for this model, or the estimator or GPU for this input.
    """
    if estimator == MODULE:
        raise SetupError(
            f"--estimator {MODULE} runs the model's code: name it with --module pkg.mod:function"
        )
    gpu_model = gpu_named(gpu) if isinstance(gpu, str) else gpu
    if estimator == LAYERS:
        from gpumemnet.estimators import transformer

        summary, path = read(path_or_text, setup)
        profile, warnings = build_profile(summary, setup, path=path)
        estimated = transformer.estimate_layers(summary, profile, gpu_model)
        result = estimated._replace(activity=activity.estimate(profile))
    else:
        profile, warnings = profile_with_warnings(path_or_text, setup)
        result = _of_profile(profile, gpu=gpu_model, estimator=estimator)
    return result, warnings


def for_script(
    command: Sequence[str], setup: TrainingSetup, *, gpu: str | Gpu, save: Path | None
) -> tuple[Estimate, tuple[str, ...]]:
    """Estimate from a run of a training script on a pretended GPU; from its model's text if that fails.

    Args:
        command: The words of the command.
        setup: The user's stated settings must agree with the script.
        gpu: Type of GPU, by name or as a record.
        save: Path for the profile; None to not save it.

    Returns:
        The estimate, and warnings about guesses.

    Raises:
        TraceError: The script could not be traced, and its model is unknown.
        SetupError: The GPU is unknown, or the command is only a script.
    """
    import shutil  # only a script needs these

    from gpumemnet.tracing.script import start
    from gpumemnet.tracing.script.failures import OWN

    if command[0].endswith(".py") and shutil.which(command[0]) is None:
        options = "" if save is None else f"--save {shlex.quote(str(save))} "
        raise SetupError(f"{command[0]}: {_NO_PYTHON.format(options)}{command[0]}")
    _check_writable(save)
    found = start.run(command, environment=os.environ)
    if isinstance(found, start.Untraced):
        torch = _NO_TORCH if "No module named 'torch'" in found.why else ""
        by_itself = found.why.startswith(OWN)  # then the trace itself worked
        why = found.why if by_itself else f"the script could not be traced: {found.why}{torch}"
        if not found.text:
            raise TraceError(why)
        try:
            result, warnings = for_summary(found.text, setup, gpu=gpu)
        except GpuMemNetError as exc:
            raise TraceError(f"{why}; its model's text was not sufficient either: {exc}") from exc
        return result, (why, FROM_TEXT, *warnings)
    from gpumemnet.tracing.saved.choose import choose

    choose(found, setup, path=str(save or "m.rad"))  # a trace of another training is not saved
    if save is not None:
        _write(found, save)
    return for_summary(found.to_text(), setup, gpu=gpu)


def _check_writable(save: Path | None) -> None:
    """Check before a trace, which takes minutes, that its file can be written.

    Raises:
        SetupError: It cannot.
    """
    if save is None:
        return
    if save.is_dir() or not save.name:
        raise SetupError(f"--save {save}: a folder; name a file, such as {save / 'm.rad'}")
    if not os.access(save.parent, os.W_OK | os.X_OK):
        why = "may not be written to" if save.parent.is_dir() else "is not there"
        raise SetupError(f"--save {save}: the folder {save.parent} {why}; name a file in a folder of yours")


def _write(found: SavedProfile, save: Path) -> None:
    from gpumemnet.tracing.saved import record  # only a trace needs it

    try:
        record.write(found, save)
    except OSError as exc:
        raise SetupError(f"--save {save}: {exc.strerror}; name another file") from exc


def batch_of(path_or_text: str) -> int:
    """Return the batch size of a summary or a saved profile.

    Raises:
        SummaryError: The file or the text is unusable.
        SetupError: It leaves the batch size open.
    """
    return profile_with_warnings(path_or_text, TrainingSetup())[0].batch_size


def stated(memory_bytes: int, gpu_model: Gpu) -> Estimate:
    """Return the memory that a user states.

    Args:
        memory_bytes: `memory=`.
        gpu_model: Type of GPU.
    """
    return Estimate(
        estimate_bytes=memory_bytes,
        upper_bytes=memory_bytes,
        confidence=None,
        breakdown_bytes={},
        family=Family.OTHER,
        estimator="stated",
        gpu=gpu_model.name,
    )


def _of_profile(profile: ModelProfile, *, gpu: Gpu, estimator: str) -> Estimate:
    """Run an estimator on a profile; a trace's has no activity."""
    if profile.source is not Source.TRACE:
        return estimate(profile, gpu=gpu, estimator=estimator)._replace(activity=activity.estimate(profile))
    if estimator != DEFAULT:
        raise SetupError(f"--estimator {estimator} reads a model summary, not a saved trace; remove it")
    checkpointing = ", gradient checkpointing" if profile.gradient_checkpointing else ""
    p = profile
    traced = f"batch size {p.batch_size}, optimizer {p.optimizer}, precision {p.precision}{checkpointing}"
    return estimate(profile, gpu=gpu)._replace(traced=traced)


def made_by(path_or_text: str) -> str:
    """Return a sentence on the origin of a saved profile; "" for a summary.

    Raises:
        SummaryError: The file is unusable.
    """
    from gpumemnet.cli.retrace import saved_in  # rarely used

    saved = saved_in(path_or_text)
    if saved is None:
        return ""
    command = shlex.join(saved.command) or "gpumemnet.save()"
    return f"Traced: {command} ({', '.join(f'{name} {text}' for name, text in saved.versions.items())})."


def for_module(
    spec: str,
    inputs: Sequence[str],
    setup: TrainingSetup,
    *,
    gpu: str | Gpu,
    estimator: str = DEFAULT,
    save: Path | None = None,
) -> Estimate:
    """Estimate from a module: by its trace, or by FakeTensor's count.

    Args:
        spec: "pkg.mod:name" or "path/to/file.py:name".
        inputs: As for `gpumemnet.tracing.trace.trace_module`.
        setup: The training setup.
        gpu: Type of GPU, by name or as a record.
        estimator: "rad" or "faketensor".
        save: Path for the profile; None to not save it.

    Raises:
        TraceError: PyTorch is missing, or the model does not run.
        SetupError: The estimator needs a summary, or the GPU is unknown.
    """
    if estimator not in (DEFAULT, MODULE):
        raise SetupError(f"--estimator {estimator} reads a model summary, not a module; remove --module")
    from importlib.util import find_spec  # only a module needs it

    if find_spec("torch") is None:
        raise TraceError(_NO_MODULE)
    gpu_model = gpu_named(gpu) if isinstance(gpu, str) else gpu
    if estimator == MODULE:
        try:
            from gpumemnet.estimators import faketensor
        except ImportError as exc:
            raise TraceError(_NO_MODULE) from exc
        return faketensor.estimate_module(spec, inputs, setup, gpu_model)
    from gpumemnet.tracing.saved.of_trace import profile_of  # only a trace needs it
    from gpumemnet.tracing.trace import inputs_of, trace_module

    _check_writable(save)
    found = trace_module(spec, inputs=inputs, setup=setup)
    specs = inputs_of(spec, inputs, setup)
    batch_size = setup.batch_size or specs[0].shape[0]
    profile = profile_of(found, setup, batch_size=batch_size, seq_len=setup.seq_len or 0)
    if save is not None:
        from gpumemnet.tracing.saved import make, record

        kept = record.SavedProfile(
            profiles=(profile,),
            batch_size=batch_size,
            model=spec,
            inputs=tuple(map(make.written, specs)),
            versions=make.versions(),
            warnings=found.warnings,
        )
        _write(kept, save)
    estimated = estimate(profile, gpu=gpu_model)
    return estimated._replace(warnings=(*found.warnings, *estimated.warnings))
