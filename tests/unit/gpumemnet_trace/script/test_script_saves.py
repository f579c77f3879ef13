"""Scripts that save: no checkpoint is written, and none that is there is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from traced import estimated

pytest.importorskip("torch")

from gpumemnet.tracing.script.libraries.checkpoints import TOO_SOON

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
TO_ANOTHER = BY_MEMORY.replace('"best.ckpt"', 'f"{step}.ckpt"')
RENAMED = """buffer = io.BytesIO()
            torch.save(model.state_dict(), buffer)
            with open("new.ckpt", "wb") as file:
                file.write(buffer.getvalue())
            os.replace("new.ckpt", "best.ckpt")"""
READ_AGAIN = """buffer = io.BytesIO()
            torch.save(model.state_dict(), buffer)
            buffer.seek(0)
            torch.load(buffer)"""
BY_RENAMING = """with open("new.ckpt", "wb") as file:
                torch.save(model.state_dict(), file)
            os.replace("new.ckpt", "best.ckpt")"""
TO_A_FILE = """with open(f"{step}.ckpt", "wb") as file:
                torch.save(model.state_dict(), file)"""


@pytest.mark.parametrize(
    ("first", "save", "traced"),
    [
        (0, BY_MEMORY, True),
        (1, BY_MEMORY, True),
        (0, TO_ANOTHER, True),
        (0, RENAMED, True),
        (0, READ_AGAIN, False),
        (0, BY_RENAMING, True),
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


DATA_SET = """
    import io, os, torch

    made = {"x": torch.arange(32.0).reshape(4, 8), "about": ["a", "b"]}
    torch.save(made, "processed.pt")
    buffer = io.BytesIO()
    torch.save(made, buffer)
    with open("again.pt", "wb") as file:
        file.write(buffer.getvalue())
    torch.save({"x": torch.zeros(1)}, "there.pt")
    made = torch.load("again.pt")
    model = torch.nn.Linear(8, 2).cuda()
    torch.save(model.state_dict(), "first.pt")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        model(torch.load("processed.pt")["x"].cuda()).sum().backward()
        optimizer.step()
        torch.save(made, "last.pt")
"""


def test_what_a_data_set_makes_of_its_files_is_saved_and_read_again(tmp_path: Path) -> None:
    (tmp_path / "there.pt").write_text("of last week")
    done = estimated(tmp_path, DATA_SET)
    assert json.loads(done.stdout)["estimator"] == "trace"
    assert (tmp_path / "there.pt").read_text() == "of last week"
