"""QLoRA: frozen weights of 4 bits, by a class in the manner of bitsandbytes' and by bitsandbytes itself where it is.

The published layout (Dettmers et al., QLoRA, sections 3 and 4; bitsandbytes' `quantize_4bit`): two weights in a byte,
an absmax for each 64 of them, of 8 bits with double quantization, and of these one in fp32 for each 256.
"""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("torch")

from gpumemnet.tracing.saved.record import SavedProfile
from gpumemnet.tracing.script import start
from gpumemnet.tracing.script.libraries.paged import PAGED

LAYERS, WIDTH, RANK = 6, 1024, 128
"""Of that rank an adapter has more than 100,000 weights, below which bitsandbytes pages no states."""
LOOP = f"""
    class LowRank(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = four_bits()
            self.down = nn.Linear({WIDTH}, {RANK}, bias=False, dtype=torch.bfloat16)
            self.up = nn.Linear({RANK}, {WIDTH}, bias=False, dtype=torch.bfloat16)

        def forward(self, x):
            return self.base(x) + self.up(self.down(x))


    model = nn.Sequential(*(LowRank() for _ in range({LAYERS}))).to("cuda")
    assert all(layer.base.weight.dtype == torch.uint8 for layer in model)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = make_optimizer(trained)
    for _ in range(4):
        x = torch.zeros(32, {WIDTH}).to("cuda", torch.bfloat16)
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
IN_THE_MANNER = """
    import torch
    from torch import nn


    class Packed(nn.Parameter):
        def __new__(cls, data, layer=None, packed=False):
            self = torch.Tensor._make_subclass(cls, data, False)
            self.layer, self.packed, self.data = layer, packed, data
            return self

        def to(self, *args, **kwargs):
            device = torch._C._nn._parse_to(*args, **kwargs)[0]
            if self.packed or device is None:
                return Packed(super().to(*args, **kwargs), self.layer, self.packed)
            whole = self.data.contiguous().to(device)
            blocks = whole.numel() // 64
            self.data = torch.empty(whole.numel() // 2, 1, dtype=torch.uint8, device=device)
            self.layer.absmax = torch.empty(blocks, dtype=torch.uint8, device=device)
            self.layer.absmax2 = torch.empty(blocks // 256, device=device)
            self.packed = True
            return self


    class FourBits(nn.Linear):
        def __init__(self, width):
            super().__init__(width, width, bias=False, dtype=torch.bfloat16)
            self.weight = Packed(self.weight.data, self)

        def forward(self, x):
            assert isinstance(self.weight, Packed) and self.weight.packed and self.weight.layer is self
            return Product.apply(x, self.weight)


    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, packed):
            ctx.packed = packed
            return x @ torch.empty(x.shape[-1], 2 * packed.numel() // x.shape[-1], dtype=x.dtype, device=x.device)

        @staticmethod
        def backward(ctx, grad):
            width = grad.shape[-1]
            whole = torch.empty(width, 2 * ctx.packed.numel() // width, dtype=grad.dtype, device=grad.device)
            return grad @ whole, None


    def four_bits():
        return FourBits(WIDTH)


    def make_optimizer(trained):
        model.to("cuda")
        return torch.optim.AdamW(trained)
"""
BY_BITSANDBYTES = """
    import bitsandbytes, torch
    from torch import nn


    def four_bits():
        how = {"compute_dtype": torch.bfloat16, "compress_statistics": True, "quant_type": "nf4"}
        return bitsandbytes.nn.Linear4bit(WIDTH, WIDTH, bias=False, **how)


    def make_optimizer(trained):
        return bitsandbytes.optim.PagedAdamW8bit(trained)
"""


def traced(folder: Path, library: str) -> SavedProfile:
    path = folder / "train.py"
    path.write_text(textwrap.dedent(library).replace("WIDTH", str(WIDTH)) + textwrap.dedent(LOOP))
    found = start.run([sys.executable, str(path)], environment=os.environ)
    assert isinstance(found, SavedProfile), found
    return found


def layout_bytes() -> int:
    """Return what the published layout takes for the frozen weights, and the weights that are trained."""
    frozen = LAYERS * WIDTH * WIDTH
    return frozen // 2 + frozen // 64 + 4 * (frozen // 64 // 256) + LAYERS * 2 * RANK * WIDTH * 2


def test_a_weight_that_changes_its_class_takes_what_its_layout_says(tmp_path: Path) -> None:
    (profile,) = traced(tmp_path, IN_THE_MANNER).profiles
    assert profile.parameter_bytes == layout_bytes()
    assert (profile.precision, profile.optimizer_bytes) == ("bf16", 2 * LAYERS * 2 * RANK * WIDTH * 2)


def test_bitsandbytes_takes_what_its_layout_says(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    found = traced(tmp_path, BY_BITSANDBYTES)
    (profile,) = found.profiles
    # Next to the layout each layer has tables of 16 and of 256 values.
    assert profile.parameter_bytes == pytest.approx(layout_bytes(), rel=0.005)
    assert found.warnings == (PAGED,)
    assert profile.optimizer_bytes >= 2 * LAYERS * 2 * RANK * WIDTH
