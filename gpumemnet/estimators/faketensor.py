"""FakeTensor, as used in the thesis (section 5.3.2): live storages of one forward and backward on fake tensors.

Kept as a baseline. Known limitations: no optimizer, context, libraries, workspace or allocator. It needs the model's
code and torch, so its input is a module, not a profile.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from gpumemnet.errors import TraceError
from gpumemnet.estimate import Estimate
from gpumemnet.estimators.analytic import KEYS
from gpumemnet.gpus import Gpu
from gpumemnet.names import Precision
from gpumemnet.tracing.trace import target
from gpumemnet.tracing.trace.inputs import parse_inputs
from gpumemnet.tracing.trace.loss import step_for, users_step
from gpumemnet.tracing.trace.session import family_of
from gpumemnet.tracing.trace.step import Script
from gpumemnet.training import TrainingSetup

NAME = "faketensor"


def estimate_module(spec: str, inputs: Sequence[str], setup: TrainingSetup, gpu: Gpu) -> Estimate:
    """Estimate for the module named by the user.

    Args:
        spec: As for `gpumemnet.tracing.trace.trace_module`.
        inputs: Likewise.
        setup: Supplies B and S of the inputs; bf16 halves every tensor. Optimizer and autocast are ignored.
        gpu: Only named in the result.

    Returns:
        The peak of live storages; it has no bound, so the bound is the estimate.

    Raises:
        TraceError: The module cannot be imported, or does not run on these inputs.
    """
    specs = parse_inputs(inputs, setup)
    found = target.find(spec)
    made: list[target.Target] = []
    warnings: list[str] = []
    real = torch.bfloat16 if setup.precision is Precision.BF16 else torch.float32

    def build() -> torch.nn.Module:
        made.append(target.build(found, spec))
        model: torch.nn.Module = made[0].model.to("meta")
        return model.to(real) if real != torch.float32 else model

    def step(model: torch.nn.Module) -> torch.Tensor:
        batch = {}
        for number, each in enumerate(specs):
            dtype = getattr(torch, each.dtype)
            batch[each.name or str(number)] = torch.empty(
                each.shape, dtype=real if dtype == torch.float32 else dtype
            )
        user = made[0]
        run = users_step(user.step) if user.step is not None else step_for(user.loss, warnings.append)
        return run(model, batch, Script())

    try:
        total = peak_bytes(build, step)
    except TraceError:
        raise
    except Exception as exc:
        text = " ".join(str(exc).split())[:300]
        raise TraceError(f"the model does not run on these inputs: {type(exc).__name__}: {text}") from exc
    return Estimate(
        estimate_bytes=total,
        upper_bytes=total,
        confidence=None,
        breakdown_bytes=dict.fromkeys(KEYS, 0) | {"activations": total},
        family=family_of(made[0].model),
        estimator=NAME,
        gpu=gpu.name,
        warnings=tuple(warnings),
    )


class StorageCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sums the bytes of all live storages that pass through any operation.

    Attributes:
        live_bytes: Current sum.
        peak_bytes: Maximum so far.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live_bytes = self.peak_bytes = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation and count the storages of its results."""
        result = func(*args, **(kwargs or {}))
        for leaf in tree_iter(result):
            if isinstance(leaf, torch.Tensor):
                self.count(leaf)
        return result

    def count(self, tensor: torch.Tensor) -> None:
        """Count a tensor's storage until it dies."""
        storage = tensor.untyped_storage()
        key, n_bytes = storage._cdata, storage.nbytes()
        if key in self._seen:
            return
        self._seen.add(key)
        self.live_bytes += n_bytes
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        weakref.finalize(storage, self._gone, key, n_bytes)

    def _gone(self, key: int, n_bytes: int) -> None:
        self._seen.discard(key)
        self.live_bytes -= n_bytes


def peak_bytes(build: Callable[[], torch.nn.Module], step: Callable[[torch.nn.Module], torch.Tensor]) -> int:
    """Return the estimate for one module.

    Args:
        build: Makes the model on the current default device.
        step: Runs the forward pass on inputs of the same device and returns the loss.
    """
    with torch.device("meta"):
        counter = StorageCounter()
        model = build().train()
        for tensor in (*model.parameters(), *model.buffers()):
            counter.count(tensor)
        with counter:
            torch.autograd.backward(step(model))
    return counter.peak_bytes
