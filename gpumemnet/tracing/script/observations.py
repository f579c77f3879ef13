"""Observations of a script: the inputs of its model and the number of optimizer steps."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from gpumemnet.tracing.script.libraries.data_parallel import DistributedDataParallel
from gpumemnet.tracing.script.loaders import REPORTED, assumed, tensors_in
from gpumemnet.tracing.script.pretend import Settings
from gpumemnet.tracing.script.rounds import Rounds
from gpumemnet.tracing.trace.inputs import InputSpec
from gpumemnet.tracing.trace.uncertainty import UNREAD_TIMES, growth


@dataclass
class ScriptObservations:
    """Observations of a script.

    Attributes:
        settings: What it requested of torch.
        inputs: Inputs of its model: of the last call before the first backward pass, then the largest.
        batch_size: Samples in them; 1 for a model without inputs (it makes its own, or holds its graph).
        parameters: Parameters of the largest model that was called, a frozen one counting as none.
        rounds: Counter of its optimizers' steps.
    """

    settings: Settings
    inputs: tuple[InputSpec, ...] = ()
    batch_size: int = 1
    parameters: int = 0
    rounds: Rounds = field(default_factory=Rounds)
    _most: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def called(self, module: nn.Module, args: Any, kwargs: Any, *, first: bool) -> bool:
        """Record a call's inputs; return whether they are the model's.

        Args:
            module: The called module; if smaller than an earlier one, it is a part or a helper of the model.
            args: Positional arguments.
            kwargs: Arguments by name.
            first: True before the first backward pass; such calls may be trial runs of the model.
        """
        inputs = _specs(module, args, kwargs)
        weights = list(module.parameters())
        trains = any(p.requires_grad for p in weights)
        parameters = sum(0 if is_lazy(p) else p.numel() for p in weights) if trains else 0
        if not inputs or parameters < self.parameters:
            return False
        size, step = _elements(inputs), self.rounds.made
        if parameters > self.parameters:
            self._most.clear()  # those were a part's or a helper's
        sizes = tuple(math.prod(each.shape) for each in inputs)
        self._most[step] = tuple(map(max, zip(sizes, self._most.get(step, sizes))))
        if first or size > _elements(self.inputs) or parameters > self.parameters:
            self.parameters, self.inputs, self.batch_size = parameters, inputs, max(_samples(args, inputs), 1)
        return True

    @property
    def tokens(self) -> int:
        """Tokens per sample if the model is called with two-dimensional integers; else 0."""
        first = next((each for each in self.inputs if len(each.shape) > 1), None)
        return first.shape[1] if first and len(first.shape) == 2 and first.dtype.startswith("int") else 0

    @property
    def changing(self) -> str:
        """Return a sentence for the user if the script changes input sizes between steps; "" if not.

        Steps of alternating optimizers differ in any case.
        """
        steps, ratio = self._steps(), self._ratio()
        if ratio <= REPORTED * self.settings.ratio:
            return ""
        return (
            f"the script makes inputs of other sizes in other steps ({ratio:.2f} times within the first {len(steps)}): "
            f"the largest of these is counted{assumed(self.growth)}"
        )

    @property
    def growth(self) -> float:
        """Return the share by which inputs of later steps may exceed the largest that were counted."""
        if self._ratio() <= REPORTED * self.settings.ratio:
            return self.settings.growth
        return max(self.settings.growth, *(growth(sizes, UNREAD_TIMES) for sizes in zip(*self._steps())))

    def _steps(self) -> list[tuple[int, ...]]:
        """Return the sizes of each complete step's inputs, in order; empty for alternating optimizers."""
        if len(self.rounds.optimizers) > 1:
            return []
        steps = [sizes for step, sizes in self._most.items() if step < self.rounds.made]
        # If the loader's batches differ, its own sentence reports that.
        return [(sum(sizes),) for sizes in steps] if self.settings.differ else steps

    def _ratio(self) -> float:
        return max((max(sizes) / max(min(sizes), 1) for sizes in zip(*self._steps())), default=1.0)

    def trained(self) -> list[Tensor]:
        """Return the parameters of all optimizers."""
        return [
            p for o in self.rounds.optimizers.values() for group in o.param_groups for p in group["params"]
        ]


def users(model: nn.Module) -> nn.Module:
    """Return the user's model from inside a library's wrapper for several ranks.

    Args:
        model: Model as called by the script.
    """
    wrapped = (
        isinstance(model, (DistributedDataParallel, nn.DataParallel))
        or type(model).__name__ == "FullyShardedDataParallel"
    )
    return model.module if wrapped and isinstance(model.module, nn.Module) else model


def _specs(module: nn.Module, args: Any, kwargs: Any) -> tuple[InputSpec, ...]:
    """Return a call's tensors in the order of the model's parameter names: a loader may put labels first."""
    try:
        places = list(inspect.signature(users(module).forward).parameters)
    except (TypeError, ValueError):
        places = []
    place = {name: at for at, name in enumerate(places)}
    named = sorted(kwargs.items(), key=lambda item: place.get(item[0], len(place)))
    found = []
    for name, value in [*((None, a) for a in args), *named]:
        for tensor in tensors_in(value):
            if tensor.dim():
                dtype = str(tensor.dtype).removeprefix("torch.")
                found.append(InputSpec(name=name, shape=tuple(tensor.shape), dtype=dtype))
    return tuple(found)


def _elements(inputs: tuple[InputSpec, ...]) -> int:
    return sum(math.prod(each.shape) for each in inputs)


def _samples(args: Any, inputs: tuple[InputSpec, ...]) -> int:
    """Return the batch size; for a list of images (torchvision's detectors), their number.

    For a dictionary or an object, the order is unknown; its largest tensor has one row per sample.
    """
    first = inputs[0]
    if not args or isinstance(args[0], Tensor) or first.name is not None:
        return first.shape[0]
    if isinstance(args[0], (list, tuple)) and all(isinstance(each, Tensor) for each in args[0]):
        return len(args[0]) if len(first.shape) == 3 else first.shape[0]
    return max(inputs, key=lambda each: math.prod(each.shape)).shape[0]
