"""A checkpoint with tensors of both the GPU and the CPU: each is counted where the script has it."""

from __future__ import annotations

from pathlib import Path

import pytest
from traced import saved

torch = pytest.importorskip("torch")

SCRIPT = """
    import torch
    kept = torch.load("mixed.pt")
    assert int(kept["step"]) == 7, "what is read on the CPU keeps its values"
    model = torch.nn.Linear(64, 10).cuda()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        sgd.zero_grad()
        model(torch.rand(8, 64, device="cuda")).sum().backward()
        sgd.step()
"""


def test_only_the_gpus_part_of_a_checkpoint_is_on_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, large = torch.rand(2000, 2000), torch.rand(6000, 6000)
    tag, size = torch.serialization.location_tag, weights.untyped_storage().nbytes()
    monkeypatch.setattr(
        torch.serialization, "location_tag", lambda one: "cuda:0" if one.nbytes() == size else tag(one)
    )
    torch.save({"weights": weights, "large": large, "step": torch.tensor(7)}, tmp_path / "mixed.pt")
    _, found = saved(tmp_path, SCRIPT)
    assert size <= found.profiles[0].allocated_bytes < large.untyped_storage().nbytes()
