"""Scripts whose settings of PyTorch move the peak of their training."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from traced import saved  # noqa: E402

from gpumemnet.tracing.script.torch_settings import VARIABLES, expandable_segments, options  # noqa: E402
from gpumemnet.tracing.trace.uncertainty import KINDS  # noqa: E402

TRAINS = """
    import os
    os.environ["{variable}"] = "{value}"
    import torch
    from torch import nn

    {before}
    model = nn.Sequential(nn.Conv2d(3, 70, 3), nn.ReLU(), nn.Conv2d(70, 90, 3), nn.Flatten()).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        {forward}
        loss.backward()
        optimizer.step()
        {after}
"""
FORWARD = 'loss = model(torch.rand(30, 3, 61, 61, device="cuda")).sum()'
HALF = f"with torch.autocast('cuda'): {FORWARD}"


def traced(tmp_path: Path, **parts: str) -> tuple[int, int, list[str]]:
    """Return the reserved memory, the further doubt and the kinds of it that were named."""
    given = {
        "variable": "UNUSED",
        "value": "",
        "before": "",
        "forward": FORWARD,
        "after": "",
        **parts,
    }
    _, found = saved(tmp_path, TRAINS.format(**given))
    (profile,) = found.profiles
    named = [name for name, kind in KINDS.items() if any(kind.words in each for each in found.warnings)]
    return profile.reserved_bytes, profile.doubt_bytes, named


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        ({}, None),
        ({"after": "torch.cuda.empty_cache()"}, "emptied"),
        ({"before": "torch.cuda.empty_cache()"}, None),
        ({"before": "torch.backends.cudnn.allow_tf32 = False"}, "no TF32"),
        ({"before": "torch.backends.cudnn.allow_tf32 = False", "forward": HALF}, None),
        ({"before": "torch.backends.cuda.matmul.allow_tf32 = True"}, None),
        ({"variable": VARIABLES[0], "value": "max_split_size_mb:128"}, "allocator"),
        ({"variable": VARIABLES[1], "value": "roundup_power2_divisions:4"}, "allocator"),
        ({"variable": VARIABLES[0], "value": "garbage_collection_threshold:0.8"}, None),
    ],
    ids=str,
)
def test_a_setting_that_may_take_more_widens_the_bound_and_is_named(
    tmp_path: Path, parts: dict[str, str], kind: str | None
) -> None:
    reserved, further, named = traced(tmp_path, **parts)
    assert named == ([] if kind is None else [kind])
    assert further == (0 if kind is None else int(KINDS[kind].share * reserved))


def test_expandable_segments_are_counted_as_such(tmp_path: Path) -> None:
    plain, *_ = traced(tmp_path)
    for variable in VARIABLES:
        found, further, named = traced(tmp_path, variable=variable, value="expandable_segments:True")
        assert (found < plain, further, named) == (True, 0, [])


@pytest.mark.parametrize(
    ("text", "expandable"),
    [
        ("", False),
        ("expandable_segments:False", False),
        ("expandable_segments:true,max_split_size_mb:64", True),
        (" max_split_size_mb : 64 , expandable_segments : True ", True),
        ("expandable_segments", False),
        (":,,::True", False),
    ],
)
def test_the_variable_is_read_as_pytorch_does(text: str, expandable: bool) -> None:
    assert expandable_segments({VARIABLES[0]: text}) is expandable
    assert "" not in options({VARIABLES[1]: text})
