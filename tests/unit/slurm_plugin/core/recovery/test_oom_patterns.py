"""Looking for the words of an OOM takes a time in proportion to the output's length, whatever a job prints."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from fakes import FakeClock

from epilog.evidence import OWN_PATTERNS_S, shown_by
from epilog.tails import TAIL_BYTES
from slurm_plugin.core.config import toml
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.logs.hook_log import HookLog
from slurm_plugin.core.recovery.classify import Ending, classify
from slurm_plugin.core.recovery.oom_patterns import SHIPPED_PATTERNS, last_found, load_patterns
from slurm_plugin.core.units import GIB
from slurm_plugin.slurm.node.output_before import MOST_FILES
from tests.timing import within

PATTERNS = load_patterns()
FAILED = Ending(exit_status=256)
MOST_CPU_S = 1.5
"""For 8 files of 256 KiB; a machine of 2020 needs a quarter of it. The expressions of before needed minutes."""


def repeated(text: str) -> list[str]:
    return [(text * (TAIL_BYTES // len(text) + 1))[:TAIL_BYTES]] * MOST_FILES


def mixed(seed: int) -> list[str]:
    """Return fragments of all patterns, none of them whole, in any order."""
    pieces = [word[: len(word) // 2 + 1] for pattern in PATTERNS for word in pattern.words]
    draw = random.Random(seed)
    return [
        "".join(draw.choices([*pieces, " ", "\n", "\r"], k=40_000))[:TAIL_BYTES] for _ in range(MOST_FILES)
    ]


ADVERSARIAL = {
    "the line of the issue": repeated("NCCL Cuda failure " * 200 + "\n"),
    "no line feed at all": repeated("NCCL Cuda failure "),
    "line feeds alone": repeated("\n"),
    "carriage returns alone": repeated("\r"),
    "zeros": repeated("\0"),
    "fragments": mixed(1),
    **{
        f"{pattern.name}: its words but one, {number}": repeated("".join(pattern.words[:-1]) * 3 + "\n")
        for number, pattern in enumerate(PATTERNS)
        if len(pattern.words) > 1
    },
    **{
        f"{pattern.name}: its words in the wrong order, {number}": repeated(
            " ".join(reversed(pattern.words)) + "\n"
        )
        for number, pattern in enumerate(PATTERNS)
        if len(pattern.words) > 1
    },
    "every pattern in every line": repeated(" ".join(word for p in PATTERNS for word in p.words) + "\n"),
    "sizes without end": repeated("CUDA out of memory. Tried to allocate " + "9." * 4000),
}


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_no_output_of_a_job_costs_root_more_than_its_length(name: str) -> None:
    start_s = time.process_time()
    classify(FAILED, ADVERSARIAL[name], PATTERNS)
    assert time.process_time() - start_s < within(MOST_CPU_S)


def test_shipped_patterns_are_plain_texts() -> None:
    assert PATTERNS and all(pattern.words and pattern.regex is None for pattern in PATTERNS)
    rows = toml.loads(SHIPPED_PATTERNS.read_text())["pattern"]
    known = {"name", "kind", "words", "at_line_start", "size_after", "unless"}
    assert all(set(row) <= known for row in rows)
    assert all("\n" not in word and "\r" not in word for pattern in PATTERNS for word in pattern.words)


def test_the_last_line_counts_and_a_size_may_stand_earlier() -> None:
    text = "CUDA out of memory. Tried to allocate 2.00 GiB.\nepoch 3\rtorch.OutOfMemoryError\nsrun: error\n"
    found = last_found([text], PATTERNS)
    assert found is not None
    assert (found.line, found.attempted_bytes) == ("torch.OutOfMemoryError", 2 * GIB)


def test_what_tensorflow_says_of_a_training_that_goes_on_is_no_failure() -> None:
    """bfc_allocator.cc shows both in the same words, and one of them to the end."""
    reported = "W tensorflow/bfc_allocator.cc:309] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.20GiB"
    goes_on = f"{reported} with freed_by_count=0. The caller indicates that this is not a failure, but this may mean\n"
    assert last_found([goes_on], PATTERNS) is None
    assert classify(FAILED, [goes_on + "KeyError: 'labels'\n"], PATTERNS).kind == "failed"
    fails = f"{reported} (rounded to 2362232064)requested by op gradients/conv\n"
    for text in (fails + goes_on, goes_on + fails):
        assert classify(FAILED, [text], PATTERNS).kind == "gpu-oom"


def test_words_count_in_one_line_and_in_order_alone() -> None:
    assert last_found(["NCCL\nCuda failure\nout of memory"], PATTERNS) is None
    assert last_found(["out of memory Cuda failure NCCL"], PATTERNS) is None
    assert last_found(["NCCL WARN Cuda failure 2 'out of memory'"], PATTERNS) is not None
    assert last_found(["my MemoryError"], PATTERNS) is None
    assert last_found(["MemoryError: x"], PATTERNS) is not None


def test_the_words_are_shown_however_long_their_line_is() -> None:
    outcome = classify(FAILED, ["x" * 200_000 + " CUDA out of memory. " + "y" * 1000], PATTERNS)
    assert outcome.evidence is not None and "CUDA out of memory" in outcome.evidence


def log_in(folder: Path) -> HookLog:
    return HookLog(str(folder), "epilog", job_id=1, clock=FakeClock())


def test_a_site_adds_patterns_of_its_own(tmp_path: Path) -> None:
    own = tmp_path / "oom_patterns.toml"
    own.write_text('[[pattern]]\nname = "own"\nkind = "gpu"\nregex = "device is full: (?P<attempted>.*)$"\n')
    outcome = shown_by(FAILED, ["device is full: 3 GiB\nlater"], own, log_in(tmp_path))
    assert (outcome.pattern, outcome.attempted_bytes) == ("own", 3 * GIB)
    own.write_text('[[pattern]]\nname = "own"\nkind = "gpu"\nwords = ["device is", "full"]\n')
    assert shown_by(FAILED, ["device is quite full"], own, log_in(tmp_path)).pattern == "own"


def test_a_sites_expression_that_never_ends_costs_half_a_second_and_no_recovery(tmp_path: Path) -> None:
    own = tmp_path / "oom_patterns.toml"
    own.write_text('[[pattern]]\nname = "own"\nkind = "gpu"\nregex = "(a+)+b"\n')
    start_s = time.monotonic()
    outcome = shown_by(FAILED, ["a" * 4000 + "\nCUDA out of memory."], own, log_in(tmp_path))
    assert time.monotonic() - start_s < OWN_PATTERNS_S + within(2)
    assert outcome.pattern == "pytorch"
    assert "patterns left out: " in (tmp_path / "epilog.log").read_text()


BROKEN = [
    "[[pattern]]\nname='x'\nkind='gpu'\nregex='('",
    "[[pattern]]\nname='x'",
    "x",
    "pattern = 3",
    "[[pattern]]\nname='x'\nkind='disk'\nregex='x'",
    "[[pattern]]\nname='x'\nkind='gpu'\nwords=['']",
    "[[pattern]]\nname='x'\nkind='gpu'\nwords='x'",
    "[[pattern]]\nname='x'\nkind='gpu'\nwords=['x']\nregex='x'",
]


@pytest.mark.parametrize("text", BROKEN)
def test_wrong_patterns_name_their_file_and_the_shipped_ones_stay(tmp_path: Path, text: str) -> None:
    own = tmp_path / "oom.toml"
    own.write_text(text)
    with pytest.raises(ConfigError, match=r"oom\.toml"):
        load_patterns((own,))
    assert shown_by(FAILED, ["CUDA out of memory."], own, log_in(tmp_path)).kind == "gpu-oom"
    assert "oom.toml" in (tmp_path / "epilog.log").read_text()


def test_patterns_that_are_no_toml_or_no_file_are_named_at_once(tmp_path: Path) -> None:
    own = tmp_path / "oom.toml"
    own.write_text("[[pattern]]\nname = x\n")
    with pytest.raises(ConfigError, match=r"oom\.toml:2: not TOML: "):
        load_patterns((own,))
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ConfigError, match="not a regular file"):
        load_patterns((tmp_path / "fifo",))
