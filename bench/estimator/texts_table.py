"""Ask rad-estimate about many saved texts, and compare each answer with what is right.

    python bench/estimator/texts_table.py /tmp/texts.tsv > /tmp/table.md

Each line of the list has a file (relative to the list), rad-estimate's options, and what is right, with tabs between:
a number of MiB, `over NUMBER`, `refused`, `read`, or nothing where the need is not known. Without the last column's
number a text must only be answered without a crash. No GPU, no Slurm; some ten texts a second.
"""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from gpumemnet.cli import main as rad_estimate

LEAST = 0.8
"""Part of the need below which an answer is an underestimate."""
HELP = ("rad-estimate", "summary(", "save", "build(", "--", "write", "run:", "#RAD", "print")
"""A refusal that helps has at least one of these."""


class TextCase(NamedTuple):
    """A text: its file, the options to ask with, and what is right."""

    file: str
    options: str
    right: str


class Answer(NamedTuple):
    """What rad-estimate answered: numbers in MiB, or the line of its refusal; its exit status."""

    status: int
    estimate: int = 0
    booked: int = 0
    bound: int = 0
    line: str = ""
    warnings: tuple[str, ...] = ()

    def shown(self) -> str:
        """Return it for a cell of the table."""
        if self.line:
            return self.line.replace("|", "/")
        return f"{self.estimate} / {self.booked} / {self.bound}" + " (noted)" * bool(self.warnings)


def main() -> None:
    """Print the table and the counts of its verdicts."""
    listed = Path(sys.argv[1])
    counts: Counter[str] = Counter()
    print(
        "| file | options | estimate / booked / bound, MiB | right | verdict |\n| --- | --- | --- | --- | --- |"
    )
    for case in cases(listed.read_text()):
        answer = answer_to(listed.parent / case.file, shlex.split(case.options))
        verdict = verdict_of(answer, case.right)
        counts[verdict] += 1
        print(f"| {case.file} | {case.options} | {answer.shown()} | {case.right} | {verdict} |")
    print("\n| verdict | texts |\n| --- | --- |")
    print("\n".join(f"| {verdict} | {count} |" for verdict, count in counts.most_common()))


def cases(text: str) -> list[TextCase]:
    """Return the lines of a list; comments begin with #."""
    rows = [line.split("\t") for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [TextCase(*(cell.strip() for cell in (*row, "", "")[:3])) for row in rows]


def answer_to(file: Path, options: list[str]) -> Answer:
    """Return rad-estimate's answer for a file."""
    out, err = io.StringIO(), io.StringIO()
    words = ["rad-estimate", str(file), "--gpu", "h200", "--json", *options]
    status = 0
    with (
        mock.patch.object(sys, "argv", words),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            rad_estimate()
        except SystemExit as exc:
            status = int(exc.code or 0)
    reply = json.loads(out.getvalue() or "{}")
    if "estimate_mib" not in reply:
        lines = reply.get("error", {}).get("lines") or err.getvalue().splitlines() or ["no answer"]
        return Answer(status, line=lines[0].replace(f"{file.parent}/", ""))
    numbers = (reply["estimate_mib"], reply["booked_mib"], reply["upper_mib"])
    return Answer(status, *numbers, warnings=tuple(reply["warnings"]))


def verdict_of(answer: Answer, right: str) -> str:
    """Judge an answer by what is right."""
    if answer.status > 2 or answer.line == "no answer":
        return "crash"
    if answer.line:
        helps = any(word in answer.line for word in HELP)
        return (
            ("refused" if right == "refused" else "refused, with the way out")
            if helps
            else "refused, no help"
        )
    if right == "refused":
        return "answered, should be refused"
    number = right.removeprefix("over ")
    if not number.isdigit():
        return "answered"
    if answer.estimate >= LEAST * int(number):
        return "answered, right" if "over" in right or answer.estimate * LEAST <= int(number) else "too high"
    return "below, booked enough" if answer.booked >= int(number) else "below"


if __name__ == "__main__":
    main()
