"""Make the result of the script's steps: a saved profile, or a text of its model."""

from __future__ import annotations

import gc
import os
import shlex
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from gpumemnet.errors import TraceError
from gpumemnet.names import Precision
from gpumemnet.tracing.saved import make, table
from gpumemnet.tracing.saved.of_trace import profile_of
from gpumemnet.tracing.saved.record import SavedProfile
from gpumemnet.tracing.script import torch_settings
from gpumemnet.tracing.script.files import COMMAND
from gpumemnet.tracing.script.libraries import sharded
from gpumemnet.tracing.script.libraries.data_parallel import DistributedDataParallel
from gpumemnet.tracing.script.observations import ScriptObservations, users
from gpumemnet.tracing.trace import course as courses
from gpumemnet.tracing.trace import memory_of
from gpumemnet.tracing.trace.cuda.tensors import local, on_cuda
from gpumemnet.tracing.trace.recording.pools import further_bytes
from gpumemnet.tracing.trace.recording.recorder import Recorder
from gpumemnet.tracing.trace.session import Trace, family_of, is_recurrent
from gpumemnet.tracing.trace.uncertainty import widened
from gpumemnet.training import TrainingSetup


def saved_profile(seen: ScriptObservations, recorder: Recorder) -> SavedProfile:
    """Return the profile of the recorded steps.

    Args:
        seen: Observations of the script.
        recorder: Holds complete steps.

    Raises:
        TraceError: The script trains on the CPU.
    """
    recorder.finish()
    model, trained = _model(seen), seen.trained()
    if not any(on_cuda(local(p)) for p in trained):
        raise TraceError("it trains on the CPU: no parameter of its optimizer is on the GPU")
    _mark(seen, recorder, model)
    parameters = [local(p) for p in model.parameters()]
    count = sum(p.numel() for p in parameters)
    trace = Trace(
        events=tuple(recorder.events),
        purpose_of=recorder.purposes(),
        phase_starts=tuple(recorder.phase_starts),
        workspaces=recorder.workspaces,
        pool_of=recorder.pool_of,
        parameters=count,
        family=family_of(model),
        warnings=recorder.assumptions.sentences(),
        recurrent=is_recurrent(model),
        cudnn_benchmark=torch.backends.cudnn.benchmark,
    )
    floats = [p for p in parameters if p.is_floating_point()]  # 4-bit weights are integers
    half = 2 * sum(p.numel() for p in floats if p.element_size() == 2) > sum(p.numel() for p in floats)
    mixed = seen.settings.autocast or sharded.computes_in_half()
    setup = TrainingSetup(
        optimizer=make.name_of(next(iter(seen.rounds.optimizers.values()))),
        precision=Precision.BF16 if half else Precision.AMP if mixed else Precision.FP32,
        gradient_checkpointing=seen.settings.checkpointing,
        gpus=seen.settings.gpus,
    )
    profile = profile_of(
        memory_of(trace, expandable_segments=torch_settings.expandable_segments(os.environ)),
        setup,
        batch_size=seen.batch_size,
        seq_len=seen.tokens,
        nccl_alone=seen.settings.nccl_alone,
    )
    fixed = profile.parameter_bytes + profile.gradient_bytes + profile.optimizer_bytes
    of_settings = torch_settings.kinds(
        os.environ, recorder.workspaces.values(), emptied=seen.settings.emptied
    )
    further, notes = widened(
        recorder.assumptions.guards.kinds | seen.settings.kinds | set(of_settings),
        reserved_bytes=profile.reserved_bytes,
        growing_bytes=max(profile.reserved_bytes - fixed, 0),
        growing=seen.growth,
        streams_bytes=further_bytes(recorder),
    )
    return SavedProfile(
        profiles=(profile._replace(doubt_bytes=further),),
        batch_size=seen.batch_size,
        shards=seen.settings.gpus if sharded.is_sharded(model) else 1,
        model=type(users(model)).__name__,
        inputs=tuple(map(make.written, seen.inputs)),
        command=tuple(shlex.split(os.environ.get(COMMAND, ""))),
        versions=make.versions(),
        warnings=(*trace.warnings, *notes),
    )


def course(seen: ScriptObservations, recorder: Recorder) -> str:
    """Return memory over the last step as JSON; "" if no step is complete; only a plot needs it.

    Args:
        seen: Observations of the script.
        recorder: Holds complete steps.
    """
    optimizers = max(len(seen.rounds.optimizers), 1)
    try:
        return courses.to_text(
            courses.course_of(recorder.events, recorder.phase_starts, optimizers=optimizers)
        )
    except TraceError:
        return ""


def text(seen: ScriptObservations, stack: ExitStack) -> str:
    """Return the model's text: a table with shapes if it ran, else what print shows; "" if there is no model yet.

    Args:
        seen: Observations of the script.
        stack: All replacements; left here, as the model is run differently now.
    """
    model = users(_model(seen))
    if not any(True for _ in model.parameters()):
        return ""
    printed = f"{model}\n"
    if not seen.inputs:
        return printed
    stack.close()
    try:
        return f"{table.of_model(make.unfilled_copy(model), seen.inputs)}\n"
    except TraceError:
        return printed


def _mark(seen: ScriptObservations, recorder: Recorder, model: nn.Module) -> None:
    trained = seen.trained()
    recorder.mark((p.grad for p in trained), "gradients")
    copies = [m for m in gc.get_objects() if issubclass(type(m), DistributedDataParallel)]
    recorder.mark([bucket for copy in copies for bucket in copy.buckets], "gradients")
    states = [state for o in seen.rounds.optimizers.values() for state in o.state.values()]
    recorder.mark([v for state in states for v in state.values() if isinstance(v, Tensor)], "optimizer")
    recorder.mark([*trained, *model.parameters(), *model.buffers()], "parameters")


def _model(seen: ScriptObservations) -> nn.Module:
    """Return the largest live module among those that hold an optimizer's parameters; if none does, among all.

    No module does if 32-bit copies are trained, from which the module's 16-bit weights are copied.
    """
    trained = {id(p) for p in seen.trained()}
    modules = [found for found in gc.get_objects() if issubclass(type(found), nn.Module)]
    holders = [m for m in modules if not trained or any(id(p) in trained for p in m.parameters())]
    return max(holders or modules, key=lambda m: sum(p.numel() for p in m.parameters()), default=nn.Module())
