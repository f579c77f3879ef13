"""Compare this checkout's answers with those of another commit, on every committed summary text.

    python bench/same_answers.py HEAD~1

For changes that must make an estimate faster and no different: profiles, warnings and error lines of the texts in
tests/data/summaries and of all runs in gpumemnet/data must be equal to the last digit. Each text is asked with its own
run's setup, where it has one, and with two others in turn. Exits 1 and names the first few that differ.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import lzma
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpumemnet.account import profile_with_warnings
from gpumemnet.errors import GpuMemNetError
from gpumemnet.estimate import estimate
from gpumemnet.training import OPTIMIZERS, PRECISIONS, TrainingSetup

CHECKOUT = Path(__file__).resolve().parents[1]
DATA = ("heldout_h200.jsonl.xz", "train_h200_texts.jsonl.xz")
OTHERS = [
    TrainingSetup(
        batch_size=batch,
        seq_len=seq_len,
        optimizer=optimizer,
        precision=precision,
        gradient_checkpointing=again,
    )
    for batch, seq_len, optimizer, precision, again in itertools.product(
        (5, 64), (None, 128), OPTIMIZERS, PRECISIONS, (False, True)
    )
]
SHOWN = 10


def texts() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield name, text and, where it is known, the setup of every committed summary text."""
    for path in sorted((CHECKOUT / "tests" / "data" / "summaries").glob("*.txt")):
        yield path.name, path.read_text(encoding="utf-8"), {}
    for name in DATA:
        with lzma.open(CHECKOUT / "gpumemnet" / "data" / name, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file):
                record = json.loads(line)
                for kind, text in record["texts"].items():
                    yield f"{name}:{number}:{kind}", text, record.get("config", record)


def setup_of(config: dict[str, Any]) -> TrainingSetup:
    """Return the setup of a run."""
    keys = ("batch_size", "seq_len", "optimizer", "precision", "gradient_checkpointing")
    return TrainingSetup(**{key: config[key] for key in keys if config.get(key) is not None})


def answer(text: str, setup: TrainingSetup) -> str:
    """Return all that an estimate says, in one line."""
    try:
        profile, warnings = profile_with_warnings(text + "\n", setup)
    except GpuMemNetError as exc:
        return f"{type(exc).__name__}: {exc}"
    result = estimate(profile)
    return f"{profile.to_text()} {result.estimate_bytes} {result.upper_bytes} {warnings}"


def answers(every: int) -> Iterator[str]:
    """Yield a line for each text and setup."""
    for number, (name, text, config) in enumerate(texts()):
        if number % every:
            continue
        at = hashlib.sha256(name.encode()).digest()[0]
        for setup in (setup_of(config), *(OTHERS[(at + step) % len(OTHERS)] for step in (0, 79))):
            yield f"{name} {answer(text, setup)}"


def archived(revision: str, folder: str) -> str:
    """Put another commit's package into a folder; return the folder."""
    archive = subprocess.run(
        ["git", "archive", revision, "gpumemnet"], cwd=CHECKOUT, check=True, stdout=subprocess.PIPE
    )
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    return folder


def answers_of(package: str, every: int) -> Iterator[str]:
    """Yield the lines as the package in a folder answers them, in a process of its own."""
    command = [sys.executable, __file__, "--print", "--every", str(every), ""]
    with subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": package}, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout
        yield from (line.rstrip("\n") for line in child.stdout)


def main() -> None:
    """Print how many answers differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision", help="the commit to compare with")
    parser.add_argument("--every", type=int, default=1, help="take one text in this many")
    parser.add_argument("--print", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.print:
        for line in answers(options.every):
            print(line)
        return
    count = differ = 0
    with tempfile.TemporaryDirectory() as folder:
        before = answers_of(archived(options.revision, folder), options.every)
        for was, now in itertools.zip_longest(before, answers_of(str(CHECKOUT), options.every)):
            count += 1
            differ += was != now
            if was != now and differ <= SHOWN:
                print(f"- {str(was)[:600]}\n+ {str(now)[:600]}")
    print(f"{differ} of {count} answers differ from {options.revision}")
    raise SystemExit(bool(differ) or not count)


if __name__ == "__main__":
    main()
