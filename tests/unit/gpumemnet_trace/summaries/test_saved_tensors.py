"""What activations keep for backward: the table of kinds against PyTorch itself, by its hooks."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import pytest

from gpumemnet.names import Group
from gpumemnet.summaries.texts import kinds

torch = pytest.importorskip("torch")
from torch import Tensor, nn  # noqa: E402 - skipped above where it is missing

ARGUMENTS = {"Threshold": (0.1, 0.0)}
WIDTH = 64
"""Long enough to tell an activation from a parameter of its own (PReLU has one)."""


def activations() -> list[type[nn.Module]]:
    """Return PyTorch's classes that the table calls activations."""
    found = [each for _, each in inspect.getmembers(nn, inspect.isclass) if issubclass(each, nn.Module)]
    named = [each for each in found if kinds.group_of(kinds.canonical(each.__name__)) is Group.ACTIVATION]
    # The buffer of LogSigmoid is empty on a GPU; the other two make several operations or half the elements.
    return [each for each in named if each not in (nn.LocalResponseNorm, nn.GLU, nn.LogSigmoid)]


def kept(function: Callable[[Tensor], Tensor]) -> tuple[bool, bool, int]:
    """Return whether backward keeps the input's or the result's memory, and how many tensors next to them.

    A clone of the input, as some in-place operations make, counts as the input.
    """
    source = nn.BatchNorm1d(WIDTH)(torch.randn(8, WIDTH))
    before, storage = source.detach().clone(), source.untyped_storage().data_ptr()
    saved: dict[int, Tensor] = {}
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: saved.setdefault(tensor.untyped_storage().data_ptr(), tensor), lambda tensor: tensor
    ):
        result = function(source)
    result_storage = result.untyped_storage().data_ptr()
    large = {where: tensor for where, tensor in saved.items() if tensor.numel() == before.numel()}
    clones = {
        where
        for where, tensor in large.items()
        if where not in (storage, result_storage) and torch.equal(tensor, before)
    }
    overwritten = storage == result_storage
    has_input = bool(clones) or (storage in large and not overwritten)
    return has_input, result_storage in large, len(set(large) - clones - {storage, result_storage})


@pytest.mark.parametrize("cls", activations(), ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("inplace", [False, True])
def test_an_activation_keeps_what_the_table_says(cls: type[nn.Module], inplace: bool) -> None:
    if inplace and "inplace" not in inspect.signature(cls).parameters:
        pytest.skip("it never works in place")
    given = {"inplace": True} if inplace else {}
    module = cls(*ARGUMENTS.get(cls.__name__, ()), **given).train()
    name = kinds.canonical(cls.__name__)
    found = kinds.find(name)
    assert found is not None
    kind = kinds.in_place(found, name, "", given)
    assert kept(module) == (kind.saves_input, kind.saves_output, kind.copies)


def new_gelu(x: Tensor) -> Tensor:
    """transformers' NewGELUActivation."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def quick_gelu(x: Tensor) -> Tensor:
    """transformers' QuickGELUActivation."""
    return x * torch.sigmoid(1.702 * x)


class _BloomGelu(torch.autograd.Function):
    """transformers' GeLUFunction, which keeps its input and calculates the rest again."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))


@pytest.mark.parametrize(
    ("name", "function"),
    [("NewGELUActivation", new_gelu), ("QuickGELUActivation", quick_gelu), ("BloomGelu", _BloomGelu.apply)],
)
def test_activations_of_transformers_keep_what_the_table_says(
    name: str, function: Callable[[Tensor], Tensor]
) -> None:
    kind = kinds.find(kinds.canonical(name))
    assert kind is not None
    assert kept(function) == (kind.saves_input, kind.saves_output, kind.copies)
