"""Compare this checkout's answers with those of another commit, to the byte, and what both cost.

    python bench/same_answers.py                     # with BASELINE, the last commit before gpumemnet was regrouped
    python bench/same_answers.py HEAD~1 --every 1    # with the parent, on every text
    python bench/same_answers.py --write FILE        # only write the answers; --read FILE compares with such a file
    python bench/same_answers.py --cost              # import and speed of both, measured in turn
    python bench/same_answers.py --instructions      # instructions of both, counted by valgrind: no other load matters

For changes that must not change a number: profile (fields that both have), estimate, bound, breakdown and the kind and
line of errors for the texts in tests/data/summaries and examples/models, seeded random variations of them, and the
texts of measured runs in gpumemnet/data; what every `#RAD` line and `rad:` comment of the repository and variations of
them say; and, where torch is installed, the traces of generated models. Each text is asked with its own run's setup,
where it has one, and with others in turn. By default one measured run's text in EVERY is taken; --every 1 takes all.
--words compares the wording of messages, too. Exits 1 and names the first few answers that differ.

The other commit is checked out into a temporary worktree and answers in a process of its own. Its answers are kept in
.rad/same_answers/, by commit and by the hash of this file and the texts.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import itertools
import json
import lzma
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
KEPT = CHECKOUT / ".rad" / "same_answers"
BASELINE = "c438e73"
EVERY = 6
DATA = ("heldout_h200.jsonl.xz", "train_h200_texts.jsonl.xz")
OPTIMIZERS = ("sgd", "sgd-momentum", "adam", "adamw", "rmsprop", "adafactor")
PRECISIONS = ("fp32", "tf32", "amp", "bf16")
OTHERS = [
    {"batch_size": batch, "seq_len": seq_len, "optimizer": o, "precision": p, "gradient_checkpointing": again}
    for batch, seq_len, o, p, again in itertools.product(
        (5, 64), (None, 128), OPTIMIZERS, PRECISIONS, (False, True)
    )
]
SHAPED = {"batch_size": 5, "input_shape": (5, 3, 96, 96)}
GPUS = ("h200", "h100", "a100", "l40s", "v100")
VARIATIONS = 12
"""Random variations of each committed text."""
TRACES = tuple((2025, index) for index in (1, 4, 7, 9, 12, 15, 20, 22, 31, 40, 44, 57))
"""Seed and index of the generated models that are traced."""
SHOWN = 10

MODULES = {
    "profile_with_warnings": ("gpumemnet.profile.build", "gpumemnet.account"),
    "estimate": ("gpumemnet.estimators.registry", "gpumemnet.estimate"),
    "for_summary": ("gpumemnet.cli.answer", "gpumemnet.answer"),
    "parse_script": ("gpumemnet.directives.parse", "gpumemnet.directives"),
    "parse_comment": ("gpumemnet.directives.parse", "gpumemnet.directives"),
    "GpuMemNetError": ("gpumemnet.errors",),
    "TrainingSetup": ("gpumemnet.training",),
    "generate": ("gpumemnet.learning.dataset.generate",),
    "trace_configuration": ("gpumemnet.learning.evaluate.traced", "gpumemnet.tracing.trace.rows"),
    "replay": ("gpumemnet.gpu_memory.allocator.events", "gpumemnet.gpu_memory.allocator"),
    "margin_bytes": ("gpumemnet.tracing.trace.result",),
}
"""Where each entry point lies, now and in BASELINE."""


def entry(name: str) -> Any:
    """Return an entry point of the package under test, wherever its commit has it."""
    for module in MODULES[name]:
        try:
            return getattr(importlib.import_module(module), name)
        except (ModuleNotFoundError, AttributeError) as exc:
            if isinstance(exc, ModuleNotFoundError) and not str(exc.name).startswith("gpumemnet"):
                raise
    raise SystemExit(f"no {name} in {MODULES[name]}")


def committed() -> Iterator[tuple[str, str]]:
    """Yield name and text of every summary that is a file of the repository."""
    for folder in ("tests/data/summaries", "examples/models"):
        for path in sorted((CHECKOUT / folder).glob("*.txt")):
            yield path.name, path.read_text(encoding="utf-8")


def measured(every: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield name, text and setup of the measured runs."""
    for name in DATA:
        with lzma.open(CHECKOUT / "gpumemnet" / "data" / name, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file):
                if number % every:
                    continue
                record = json.loads(line)
                config = record.get("config", record)
                keys = ("batch_size", "seq_len", "optimizer", "precision", "gradient_checkpointing")
                setup = {key: config[key] for key in keys if config.get(key) is not None}
                for kind, text in record["texts"].items():
                    yield f"{name}:{number}:{kind}", text, setup


def varied(text: str, rng: random.Random) -> str:
    """Return a text with a few lines lost, doubled, swapped or given another number."""
    lines = text.split("\n")
    for _ in range(rng.choice((1, 1, 2, 3))):
        at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        match rng.randrange(5):
            case 0 if len(lines) > 1:
                del lines[at]
            case 1:
                lines.insert(at, lines[other])
            case 2:
                lines[at], lines[other] = lines[other], lines[at]
            case _:
                found = list(re.finditer(r"\d[\d,]*", lines[at]))
                if found:
                    spot = rng.choice(found)
                    number = str(rng.randrange(1 << rng.randrange(1, 14)))
                    lines[at] = lines[at][: spot.start()] + number + lines[at][spot.end() :]
    return "\n".join(lines)


def texts(every: int) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """Yield name, text and the setups to ask it with."""
    for name, text in committed():
        at = hashlib.sha256(name.encode()).digest()[0]
        asked = [OTHERS[(at + step * 7) % len(OTHERS)] for step in range(24)]
        yield name, text, [{}, SHAPED, *asked]
        rng = random.Random(name)
        for number in range(VARIATIONS):
            yield f"{name}~{number}", varied(text, rng), [OTHERS[(at + number) % len(OTHERS)]]
    for name, text, setup in measured(every):
        at = hashlib.sha256(name.encode()).digest()[0]
        yield name, text, [setup, *(OTHERS[(at + step) % len(OTHERS)] for step in (0, 79))]


def of_error(exc: Exception) -> dict[str, Any]:
    """Return what an error says: its kind and line, and its words."""
    return {"error": type(exc).__name__, "line": getattr(exc, "line", None), "words": str(exc)}


def of_text(text: str, setup: dict[str, Any], *, thorough: bool) -> dict[str, Any]:
    """Return all that estimates from one text say."""
    training = entry("TrainingSetup")(**setup)
    try:
        profile, warnings = entry("profile_with_warnings")(text + "\n", training)
    except entry("GpuMemNetError") as exc:
        return of_error(exc)
    estimate = entry("estimate")
    said = {"profile": asdict(profile), "words": list(warnings), "warnings": len(warnings)}
    for estimator in ("ours", "boosted", "horus", "mlp_ensemble") if thorough else ("ours",):
        for gpu in GPUS if thorough else GPUS[:1]:
            said[f"{estimator} {gpu}"] = numbers(estimate(profile, gpu=gpu, estimator=estimator))
    return said


def numbers(result: Any) -> list[Any]:
    """Return an estimate's numbers."""
    return [result.estimate_bytes, result.upper_bytes, result.confidence, result.breakdown_bytes]


def directive_texts() -> tuple[list[str], list[str]]:
    """Return every `#RAD` line and every `rad:` comment of the repository, and variations of them."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.sh", "*.md", "*.toml", "*.lua"],
        cwd=CHECKOUT, check=True, stdout=subprocess.PIPE, text=True,
    ).stdout.split()  # fmt: skip
    lines, comments = set[str](), set[str]()
    for name in listed:
        if not (CHECKOUT / name).exists():  # removed and not committed yet
            continue
        text = (CHECKOUT / name).read_text(encoding="utf-8")
        lines |= set(re.findall(r"#RAD[^\n\"\\]*", text))
        comments |= set(re.findall(r"rad:[^\n\"`\\]*", text))
    keys = ("batch_size", "seq_len", "optimizer", "precision", "gradient_checkpointing", "gpus", "policy")
    values = ("1", "0", "64", "adam", "ADAM", "bf16", "yes", "off", "exclusive", "collocate", "'a b'", "x,y")
    lines |= {f"#RAD {key}={value}" for key in (*keys, "retry", "model") for value in values}
    amounts = ("12", "12G", "1T", "7KiB", "0", "12.5G", "9" * 12)
    lines |= {f"#RAD model=m.txt memory={value}" for value in amounts}
    comments |= {f"rad:{line[5:].replace(' ', ',')}" for line in lines}
    return sorted(lines), sorted(comments)


def directives() -> Iterator[tuple[str, Any]]:
    """Yield what every directive says."""
    for kind, found in zip(("parse_script", "parse_comment"), directive_texts(), strict=True):
        for line in found:
            try:
                said = entry(kind)(line, "job.sh") if kind == "parse_script" else entry(kind)(line)
                yield f"{kind} {line}", None if said is None else asdict(said)
            except entry("GpuMemNetError") as exc:
                yield f"{kind} {line}", of_error(exc)


def traces() -> Iterator[tuple[str, Any]]:
    """Yield what a trace of each of some generated models says; nothing without torch."""
    if importlib.util.find_spec("torch") is None:
        return
    for seed, index in TRACES:
        trace = entry("trace_configuration")(entry("generate")(seed, index))
        peaks = entry("replay")(trace.events)
        borrowed = trace.largest_convolution_bytes()
        events = hashlib.sha256(repr(trace.events).encode()).hexdigest()
        margin = entry("margin_bytes")(peaks.reserved_bytes, borrowed)
        found = [peaks.allocated_bytes, peaks.reserved_bytes, borrowed, margin, str(trace.family), events]
        yield f"trace {seed}:{index}", found


def answers(every: int) -> Iterator[tuple[str, Any]]:
    """Yield a name and an answer for each text and setup, each directive and each traced model."""
    yield from directives()
    for name, text, setups in texts(every):
        for at, setup in enumerate(setups):
            yield f"{name} {setup}", of_text(text, setup, thorough=at == 0)
    for number, (name, text) in enumerate(committed()):
        if number % 5 == 0:
            yield f"{name} transformer", of_layers(text)
    yield from traces()


def of_layers(text: str) -> Any:
    """Return the estimate of the classifier that reads the series of layers."""
    setup = entry("TrainingSetup")(batch_size=5)
    try:
        result, _ = entry("for_summary")(text + "\n", setup, gpu="h200", estimator="transformer")
    except entry("GpuMemNetError") as exc:
        return of_error(exc)
    return numbers(result)


def thousand_layers() -> str:
    """Return a torchsummary table of 1,000 layers."""
    rows = [("Conv2d", 36928), ("BatchNorm2d", 128), ("ReLU", 0)]
    table = ["-" * 64, f"{'Layer (type)':>20}  {'Output Shape':>25} {'Param #':>15}", "=" * 64]
    table += [f"{rows[n % 3][0]}-{n + 1:<4}  [-1, 64, 32, 32]  {rows[n % 3][1]:,}" for n in range(1000)]
    table += ["=" * 64, f"Total params: {sum(rows[n % 3][1] for n in range(1000)):,}", ""]
    return "\n".join(table)


def costs() -> dict[str, float]:
    """Return processor time in ms and modules loaded: importing rad-estimate, and profiling 1,000 layers."""
    begin = time.process_time()
    importlib.import_module("gpumemnet.cli")
    taken = {"import rad-estimate, ms": (time.process_time() - begin) * 1e3}
    taken["modules loaded by it"] = len(sys.modules)
    text, setup = thousand_layers(), entry("TrainingSetup")(batch_size=8)
    times = []
    for _ in range(9):
        begin = time.process_time()
        profile, _ = entry("profile_with_warnings")(text, setup)
        entry("estimate")(profile)
        times.append((time.process_time() - begin) * 1e3)
    return taken | {"first estimate of 1,000 layers, ms": times[0], "later ones, ms": min(times)}


PROFILE = f"""
try:
    from gpumemnet.profile.build import profile_with_warnings
except ImportError:
    from gpumemnet.account import profile_with_warnings
from gpumemnet.training import TrainingSetup
profile_with_warnings({str(CHECKOUT / "examples" / "models" / "resnet50_torchinfo.txt")!r}, TrainingSetup(batch_size=8))
"""
PROGRAMS = {
    "a submission's model read, resnet50": f"import slurm_plugin.login.cli_filter{PROFILE}",
    "a profile of it alone": PROFILE,
    "rad-estimate of it": f"""
import sys
from gpumemnet.cli import main
sys.argv[1:] = [{str(CHECKOUT / "examples" / "models" / "resnet50_torchinfo.txt")!r}, "--batch-size", "8"]
main()
""",
    "a profile of 1,000 layers": f"""
import sys
sys.path.append({str(CHECKOUT / "bench")!r})
from same_answers import entry, thousand_layers
entry("profile_with_warnings")(thousand_layers(), entry("TrainingSetup")(batch_size=8))
""",
    "Python alone": "",
}
"""What is counted: each program in an interpreter of its own, its modules compiled before."""


def instructions(package: Path) -> dict[str, int]:
    """Return the instructions that each program takes with the packages in a folder."""
    env = {"PYTHONPATH": str(package), "PYTHONHASHSEED": "0", "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    found = {}
    for name, code in PROGRAMS.items():
        python = [sys.executable, "-P", "-c", code]
        subprocess.run(python, env=env, check=True, stdout=subprocess.DEVNULL)  # compiles
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *python],
            env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        found[name] = int(re.findall(r"Collected : (\d+)", done.stderr)[-1])
    return found


@contextmanager
def worktree(revision: str) -> Iterator[Path]:
    """Check a commit out into a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "at"
        git = ("git", "-C", str(CHECKOUT), "worktree")
        subprocess.run([*git, "add", "-q", "--detach", path, revision], check=True)
        try:
            yield path
        finally:
            subprocess.run([*git, "remove", "--force", path], check=True)


def child(package: Path, *arguments: str) -> str:
    """Run this file on the package in a folder, in a process of its own, and return what it prints."""
    command = [sys.executable, "-P", __file__, *arguments]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(package)}, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def plain(value: object) -> object:
    """Return what JSON has no form for as something that is the same in each process."""
    return sorted(map(str, value)) if isinstance(value, (set, frozenset)) else str(value)


def write(path: Path, every: int) -> None:
    """Write the answers of the package under test, one JSON line each."""
    with path.open("w", encoding="utf-8") as out:
        for name, answer in answers(every):
            out.write(json.dumps([name, answer], sort_keys=True, default=plain) + "\n")


def kept(revision: str, every: int) -> Path:
    """Return the file with another commit's answers; made if it is not there."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", revision],
        cwd=CHECKOUT, check=True, stdout=subprocess.PIPE, text=True,
    ).stdout.strip()  # fmt: skip
    asked = [Path(__file__).read_text(encoding="utf-8"), list(committed()), directive_texts()]
    mine = hashlib.sha256(repr(asked).encode()).hexdigest()[:8]
    torch = "torch" if importlib.util.find_spec("torch") else "plain"
    path = KEPT / f"{commit}-{every}-{torch}-{mine}.jsonl"
    if not path.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        with worktree(revision) as folder:
            child(folder, "--every", str(every), "--write", str(path.with_suffix(".part")))
        path.with_suffix(".part").rename(path)
    return path


def bare(answer: Any, other: Any, *, words: bool) -> Any:
    """Return an answer without fields of a record that the other has not, and without wording unless asked for."""
    if not isinstance(answer, dict) or not isinstance(other, dict):
        return answer
    directive = "setup" in answer and "setup" in other
    kept = {
        key: value
        for key, value in answer.items()
        if (words or key != "words") and (not directive or key in other)
    }
    for record in ("profile", "setup"):
        if record in answer and record in other:
            kept[record] = {key: value for key, value in answer[record].items() if key in other[record]}
    return kept


def compare(before: Path, after: Path, *, words: bool) -> tuple[int, int]:
    """Print the first answers that differ; return how many do, and how many there are."""
    was, now = (dict(json.loads(line) for line in path.open(encoding="utf-8")) for path in (before, after))
    names = sorted(was.keys() | now.keys())
    differ = [
        name
        for name in names
        if bare(was.get(name), now.get(name), words=words) != bare(now.get(name), was.get(name), words=words)
    ]
    for name in differ[:SHOWN]:
        print(f"{name}\n- {str(was.get(name))[:600]}\n+ {str(now.get(name))[:600]}")
    return len(differ), len(names)


def main() -> None:
    """Print how many answers differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision", nargs="?", default=BASELINE, help="the commit to compare with")
    parser.add_argument("--every", type=int, default=EVERY, help="take one measured run's texts in this many")
    parser.add_argument("--words", action="store_true", help="compare the wording of messages, too")
    parser.add_argument("--write", type=Path, help="only write this checkout's answers")
    parser.add_argument("--read", type=Path, help="compare with a file of answers instead of a commit")
    parser.add_argument("--cost", action="store_true", help="compare what importing and estimating costs")
    parser.add_argument("--instructions", action="store_true", help="count what the submit path takes")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write(options.write, options.every)
    elif options.measure:
        print(json.dumps(costs()))
    elif options.cost:
        with worktree(options.revision) as folder:
            runs = [
                (json.loads(child(folder, "--measure")), json.loads(child(CHECKOUT, "--measure")))
                for _ in range(7)
            ]
        for name in runs[0][0]:
            was, now = (min(run[side][name] for run in runs) for side in (0, 1))
            print(f"{name:<36}{was:>10.1f} at {options.revision}{now:>10.1f} now")
    elif options.instructions:
        with worktree(options.revision) as folder:
            was, now = instructions(folder), instructions(CHECKOUT)
        for name in was:
            print(
                f"{name:<40}{was[name] / 1e6:>10.1f} million at {options.revision}{now[name] / 1e6:>10.1f} now"
            )
    else:
        before = options.read or kept(options.revision, options.every)
        with tempfile.TemporaryDirectory() as folder:
            after = Path(folder) / "now.jsonl"
            child(CHECKOUT, "--every", str(options.every), "--write", str(after))
            differ, count = compare(before, after, words=options.words)
        print(f"{differ} of {count} answers differ from {options.read or options.revision}")
        raise SystemExit(bool(differ) or not count)


if __name__ == "__main__":
    main()
