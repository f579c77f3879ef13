"""Trace a configuration of the dataset, to compare the tracer with measurements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from gpumemnet.learning.dataset.catalogue import workload
from gpumemnet.learning.dataset.config import Configuration, TensorSpec
from gpumemnet.learning.dataset.workload import Workload, loss_of
from gpumemnet.names import Precision
from gpumemnet.tracing.trace.inputs import InputSpec
from gpumemnet.tracing.trace.loss import TARGET
from gpumemnet.tracing.trace.session import Trace, record
from gpumemnet.tracing.trace.step import Script, Step, optimizer_of
from gpumemnet.tracing.trace.target import Target
from gpumemnet.training import TrainingSetup

HOW: dict[str, dict[str, bool]] = {
    "default": {},
    "foreach": {"foreach": True},
    "forloop": {"foreach": False},
    "fused": {"fused": True},
}


def trace_configuration(config: Configuration) -> Trace:
    """Trace the training loop of `gpumemnet.learning.dataset.running.measure` for this configuration."""
    work = workload(config)
    setup = TrainingSetup(
        batch_size=config.batch_size,
        seq_len=config.seq_len,
        optimizer=config.optimizer,
        precision=config.precision,
    )

    def make() -> Target:
        model = work.build()
        if config.gradient_checkpointing:
            work.set_checkpointing(model)
        return Target(model=model, optimizer=optimizer_of(setup, **HOW[config.implementation]))

    torch.backends.cuda.matmul.allow_tf32 = config.precision is Precision.TF32
    return record(make, _specs(work, config.batch_size), setup, step=_step(work))


def _specs(work: Workload, batch_size: int) -> list[InputSpec]:
    inputs = work.inputs
    named: list[tuple[str | None, TensorSpec]] = []
    if isinstance(inputs, Mapping):
        named.extend(inputs.items())
    else:
        named.extend((None, spec) for spec in inputs)
    if work.target is not None:
        named.append((TARGET, work.target))
    return [_spec(name, spec, batch_size) for name, spec in named]


def _spec(name: str | None, spec: TensorSpec, batch_size: int) -> InputSpec:
    dtype = "int64" if spec.kind == "int" else "float32"
    return InputSpec(name=name, shape=(batch_size, *spec.shape), dtype=dtype)


def _step(work: Workload) -> Step:
    def step(model: nn.Module, batch: dict[str, Any], script: Script) -> Tensor:
        positional = [value for name, value in batch.items() if name.isdigit()]
        named = {k: v for k, v in batch.items() if not k.isdigit() and k != TARGET}
        script.output = model(*positional, **named)
        return loss_of(work, script.output, batch.get(TARGET))

    return step
