"""Scripts that call torch.compile: traced as they run without it, which is no less than compiled code saves."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from gpumemnet.tracing.saved.record import SavedProfile  # noqa: E402
from gpumemnet.tracing.script import start  # noqa: E402
from gpumemnet.tracing.script.libraries.compiled import LEFT_OUT, NOT_COUNTED  # noqa: E402
from gpumemnet.tracing.trace.uncertainty import KINDS  # noqa: E402

SCRIPT = """
    import sys, torch
    from torch import nn

    compile = torch.compile if "compile" in sys.argv else lambda each=None, **_: each or (lambda one: one)
    model = nn.Sequential(nn.Linear(784, 2048), nn.GELU(), nn.Linear(2048, 10)).cuda()
    model = compile(model, mode="max-autotune")
    getattr(model, "_orig_mod", model).state_dict()


    @compile(dynamic=True)
    def loss_of(output, label):
        return nn.functional.cross_entropy(output, label)


    @compile
    def never_called():
        raise AssertionError


    assert loss_of.__name__ == "loss_of"
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        optimizer.zero_grad()
        loss_of(model(torch.randn(64, 784).cuda()), torch.randint(0, 10, (64,)).cuda()).backward()
        optimizer.step()
"""


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.taken, self.given = nn.LayerNorm(64), nn.Linear(64, 192), nn.Linear(64, 64)

    def forward(self, x: Any) -> Any:
        heads = (
            part.unflatten(-1, (4, 16)).transpose(1, 2) for part in self.taken(self.norm(x)).chunk(3, -1)
        )
        return x + self.given(nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))


def convolutions() -> tuple[nn.Module, tuple[int, ...]]:
    layers = (
        nn.Conv2d(3, 16, 3),
        nn.BatchNorm2d(16),
        nn.SiLU(),
        nn.Conv2d(16, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )
    return nn.Sequential(*layers), (4, 3, 32, 32)


def attention() -> tuple[nn.Module, tuple[int, ...]]:
    return nn.Sequential(Attention(), nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.1)), (4, 32, 64)


def plain_layers() -> tuple[nn.Module, tuple[int, ...]]:
    return nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Dropout(), nn.Linear(256, 8)), (128, 64)


def saved_bytes(model: Any, x: Any) -> int:
    """Return what lies between forward and backward."""
    found = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        found[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model(x)
    output.sum().backward()
    return sum(storage.nbytes() for storage in found.values())


@pytest.mark.parametrize("make", [convolutions, attention, plain_layers])
def test_the_partitioner_of_compiled_code_saves_no_more_than_the_plain_step(make: Any) -> None:
    """AOTAutograd's min-cut partitioner decides what a compiled step saves; code generation comes after it."""
    model, shape = make()
    x = torch.randn(shape)
    plain = saved_bytes(model, x)
    assert 0 < saved_bytes(torch.compile(model, backend="aot_eager_decomp_partition"), x) <= plain


def test_a_script_that_compiles_is_traced_as_it_runs_without(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, str(tmp_path / "train.py")]
    plain, compiled = (start.run([*command, *more], environment=os.environ) for more in ((), ("compile",)))
    assert isinstance(plain, SavedProfile), plain
    assert isinstance(compiled, SavedProfile), compiled
    (of_plain,), (of_compiled,) = plain.profiles, compiled.profiles
    assert of_compiled.doubt_bytes == int(KINDS["compiled"].share * of_plain.reserved_bytes)
    assert of_compiled._replace(doubt_bytes=0) == of_plain
    *known, wider = compiled.warnings
    assert (plain.warnings, known) == ((), [LEFT_OUT, NOT_COUNTED])
    assert KINDS["compiled"].words in wider
