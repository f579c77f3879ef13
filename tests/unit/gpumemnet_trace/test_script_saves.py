"""Scripts that save: no checkpoint is written, and none that is there is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from traced import estimated

pytest.importorskip("torch")

from gpumemnet.script.saves import TOO_SOON

CHECKPOINTS = """
    import io, os, torch

    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        model(torch.rand(4, 8, device="cuda")).sum().backward()
        optimizer.step()
        if step >= FIRST:
            SAVE
"""


BY_MEMORY = """buffer = io.BytesIO()
            torch.save(model.state_dict(), buffer)
            with open("best.ckpt", "wb") as file:
                file.write(buffer.getvalue())"""
BY_RENAMING = """with open("new.ckpt", "wb") as file:
                torch.save(model.state_dict(), file)
            os.replace("new.ckpt", "best.ckpt")"""
TO_A_FILE = """with open(f"{step}.ckpt", "wb") as file:
                torch.save(model.state_dict(), file)"""


@pytest.mark.parametrize(
    ("first", "save", "traced"),
    [
        (0, BY_MEMORY, False),
        (1, BY_MEMORY, True),
        (0, BY_RENAMING, False),
        (0, TO_A_FILE, True),
    ],
)
def test_a_checkpoint_is_not_overwritten_by_an_empty_one(
    tmp_path: Path, first: int, save: str, traced: bool
) -> None:
    """As Lightning saves, to memory and from there to a file of its own; and as others do, before the second step."""
    (tmp_path / "best.ckpt").write_text("trained for a week")
    done = estimated(tmp_path, CHECKPOINTS.replace("FIRST", str(first)).replace("SAVE", save))
    assert done.returncode == 0
    assert (tmp_path / "best.ckpt").read_text() == "trained for a week"
    answer = json.loads(done.stdout)
    assert (answer["estimator"] == "trace") == traced
    assert (f"the script could not be traced: {TOO_SOON}" in answer["warnings"]) == (not traced)
