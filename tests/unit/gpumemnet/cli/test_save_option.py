"""rad-estimate --save: what cannot be written, or was not meant, is answered before a trace or in place of a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumemnet.cli import answer
from gpumemnet.errors import SetupError, SummaryError
from gpumemnet.tracing.script import start
from gpumemnet.training import TrainingSetup
from tests.unit.gpumemnet.cli.test_retrace import saved

WORDS = ("python", "cnn.py", "--batch-size", "64")


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    made: list[list[str]] = []

    def run(words: list[str], *, environment: object) -> object:
        made.append(words)
        return saved(64, *words)

    monkeypatch.setattr(start, "run", run)
    return made


def test_a_file_that_cannot_be_written_is_named_before_the_trace(
    tmp_path: Path, traces: list[list[str]]
) -> None:
    for path, words in ((tmp_path, "a folder; name a file"), (tmp_path / "none" / "m.rad", "is not there")):
        with pytest.raises(SetupError, match=words):
            answer.for_script(WORDS, TrainingSetup(), gpu="a100", save=path)
    assert not traces


def test_a_disk_that_refuses_the_file_is_one_line(
    tmp_path: Path, traces: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(SetupError, match=r"m\.rad: No space left on device; name another file"):
        answer.for_script(WORDS, TrainingSetup(), gpu="a100", save=tmp_path / "m.rad")


def test_a_trace_of_another_training_is_not_saved_and_the_command_can_be_typed(
    tmp_path: Path, traces: list[list[str]]
) -> None:
    wanted = TrainingSetup(batch_size=128, stated=frozenset({"batch_size"}))
    with pytest.raises(SummaryError) as caught:
        answer.for_script(WORDS, wanted, gpu="a100", save=tmp_path / "q.rad")
    assert "made for batch_size=64, not 128" in str(caught.value)
    assert caught.value.fix == (
        f"let the script train with batch_size=128, then: rad-estimate --save {tmp_path}/q.rad -- "
        "python cnn.py --batch-size 64"
    )
    assert not (tmp_path / "q.rad").exists()
    result, _ = answer.for_script(WORDS, TrainingSetup(), gpu="a100", save=tmp_path / "m.rad")
    assert result.estimate_bytes > 0 and (tmp_path / "m.rad").exists()


def test_a_script_without_its_python_keeps_its_options(traces: list[list[str]]) -> None:
    with pytest.raises(SetupError, match=r"rad-estimate --save m\.rad -- python t\.py$"):
        answer.for_script(("t.py",), TrainingSetup(), gpu="a100", save=Path("m.rad"))
