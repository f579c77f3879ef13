"""Generate a page of the site's reference with every message in the code (`python3 -m lab messages`).

sbatch's messages about decisions are shown by example. All others are found where they are raised, logged or returned:
the text as written in the code, with `<name>` for values that are filled in.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from slurm_plugin.core.booking import messages
from slurm_plugin.core.records.submission import MemoryEstimate
from slurm_plugin.core.units import GIB
from slurm_plugin.directives import BEHIND

CHECKOUT = Path(__file__).resolve().parent.parent
_NEED = MemoryEstimate(estimate_bytes=int(13.6 * GIB), upper_bytes=15 * GIB, confidence=0.99, source="rad")
_LARGE = replace(_NEED, estimate_bytes=60 * GIB, upper_bytes=64 * GIB)

EXAMPLES: tuple[tuple[Callable[..., str], str, str], ...] = (
    (
        messages.reserves,
        "An estimate, booked at the estimator's bound",
        messages.reserves(15 * GIB, _NEED, share=0.99),
    ),
    (
        messages.reserves,
        "The same at confidence=0.9",
        messages.reserves(14 * GIB, _NEED, share=0.9, cap_bytes=15 * GIB),
    ),
    (
        messages.reserves,
        "The same model of the same user ran before",
        messages.reserves(15 * GIB, replace(_NEED, source="history")),
    ),
    (
        messages.reserves,
        "memory=9G",
        messages.reserves(9 * GIB, replace(_NEED, source="stated", estimate_bytes=9 * GIB)),
    ),
    (
        messages.reserves,
        "Two processes share the GPU",
        messages.reserves(30 * GIB, _NEED, share=0.99, processes=2),
    ),
    (
        messages.reserves,
        "Its compute takes more shards than its memory",
        messages.reserves(15 * GIB, _NEED, share=0.99, compute=(20, 39)),
    ),
    (messages.reserves, "policy=collocate, and the need is unknown", messages.reserves(5 * GIB, None)),
    (messages.alone, "policy=exclusive", messages.alone(messages.EXCLUSIVE)),
    (messages.alone, "The need is unknown", messages.alone(messages.NEED_UNKNOWN)),
    (messages.without_that, "After a line on what could not be understood", messages.without_that(True)),
    (messages.alone, "Its bound is about a GPU", messages.alone(messages.may_need(38 * GIB, 39 * GIB))),
    (
        messages.alone,
        "So is that of its processes together",
        messages.alone(messages.may_need(48 * GIB, 39 * GIB, 4)),
    ),
    (messages.not_managed, "", messages.not_managed("cpu")),
    (messages.mixed_partitions, "", messages.mixed_partitions("gpu,cpu")),
    (messages.below_a_process, "memory=100M", messages.below_a_process(100 << 20, 760 << 20)),
    (messages.keeps_gpu, "", messages.keeps_gpu("--gpu-freq requires a whole GPU")),
    (
        messages.keeps_gpus,
        "`share_multi_gpu`, and the need of each process is not known",
        messages.keeps_gpus("the need of each process is unknown without #RAD gpus=2"),
    ),
    (messages.keeps_gpus, "It is on several nodes", messages.keeps_gpus(messages.SEVERAL_NODES)),
    (messages.keeps_gpus, "Without `share_multi_gpu`", messages.keeps_gpus(messages.SEVERAL_GPUS)),
    (messages.reserves, "`share_multi_gpu`", messages.reserves(12 * GIB, _NEED, share=0.99, gpus=2)),
    (messages.too_large, "", messages.too_large(_LARGE, 39 * GIB)),
    (messages.too_large, "memory=60G", messages.too_large(replace(_LARGE, source="stated"), 39 * GIB)),
    (messages.too_many_shards, "", messages.too_many_shards(60, 39)),
    (messages.too_few_shards, "", messages.too_few_shards(4 * GIB, 14 * GIB, 14)),
    (messages.other_count, "", messages.other_count(4, 2)),
    (messages.each_too_large, "", messages.each_too_large(_LARGE, 39 * GIB)),
    (messages.instance, "", messages.instance("2g.20gb", _NEED)),
    (messages.no_instance, "", messages.no_instance(60 * GIB, 39 * GIB)),
)
"""Messages of sbatch: the function that returns one, when (its docstring if that is all), and an example."""

LINES = (
    ("A job with #RAD lines requests no GPU", messages.NO_GPU),
    ("A component of a heterogeneous job", messages.HETEROGENEOUS),
    ("A request for a MIG instance", messages.MIG),
    ("Shards of one's own on whole nodes", messages.SHARDS_OF_WHOLE_NODES),
    ("A script that names a model, and comes as no file", messages.NO_FILE),
    ("A script of more than 64 KiB", f"RAD: job.sh: {BEHIND}"),
)
"""Messages of sbatch with fixed text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Messages of one kind.

    Attributes:
        title: The program that prints them.
        intro: A sentence on when they appear.
        files: Files that contain them, as patterns in the checkout.
        calls: Errors, functions or methods that take them as arguments, by name.
        texts: Which arguments are text, by position and by name.
    """

    title: str
    intro: str
    files: tuple[str, ...]
    calls: tuple[str, ...]
    texts: tuple[int | str, ...] = (0,)


PARTS = (
    Part(
        title="Other messages to a job's user",
        intro="At submission, or at its start.",
        files=("slurm_plugin/radd/**/*.py", "slurm_plugin/login/cli_filter.py", "prolog/*.py", "epilog/*.py"),
        calls=("RAD: ",),
    ),
    Part(
        title="#RAD lines and rad: comments",
        intro="`FILE:LINE:` stands before each. sbatch takes the job all the same; rad-estimate ends with 2.",
        files=("gpumemnet/directives/*.py",),
        calls=("error",),
        texts=(0, 1),
    ),
    Part(
        title="Model summaries and saved profiles",
        intro="The file, and its line where there is one, stand before each.",
        files=(
            "gpumemnet/summaries/texts/**/*.py",
            "gpumemnet/summaries/shapes/*.py",
            "gpumemnet/profile/*.py",
            "gpumemnet/tracing/saved/*.py",
        ),
        calls=("SummaryError", "SetupError", "ModelFileError"),
        texts=("problem", "fix", 0),
    ),
    Part(
        title="rad-estimate",
        intro="On its standard error; the status is 2.",
        files=(
            *("gpumemnet/cli/*.py", "gpumemnet/gpus.py", "gpumemnet/tracing/trace/**/*.py"),
            *("gpumemnet/tracing/script/**/*.py", "gpumemnet/estimators/*.py"),
        ),
        calls=("SetupError", "TraceError", "ModelFileError", "_complain"),
    ),
    Part(
        title="rad.toml and the cluster's key",
        intro="From `rad`, radd, the hooks and rad-estimate.",
        files=("slurm_plugin/core/**/*.py", "slurm_plugin/estimate.py", "slurm_plugin/dry_run.py"),
        calls=("ConfigError", "SettingError"),
        texts=(0, 2),
    ),
    Part(
        title="Slurm",
        intro="Where Slurm refused, did not answer, or cannot do what is requested.",
        files=("slurm_plugin/slurm/**/*.py", "slurm_plugin/login/cli_filter.py"),
        calls=("SlurmError", "EstimateError"),
    ),
    Part(
        title="radd's log",
        intro="One line each, with the time and the level; `submit` and `change` show the decision as key=value pairs.",
        files=("slurm_plugin/radd/**/*.py",),
        calls=("info", "warning", "error", "exception"),
    ),
    Part(
        title="rad doctor",
        intro="What is found, and the fix; [every fault](../doctor.md) with its fix.",
        files=("slurm_plugin/admin/**/*.py",),
        calls=("warn", "fail", "loss"),
        texts=(1, 2),
    ),
)


def page() -> str:
    """Return the page, as Markdown."""
    lines = [
        "# Messages",
        "",
        "Every line that a user or an admin may read, made from the code. `<name>` is filled in.",
        "",
        "## sbatch, srun and salloc",
        "",
        "| when | message |",
        "|---|---|",
        *(_row(when or inspect.getdoc(function) or "", text) for function, when, text in EXAMPLES),
        *(_row("When radd does not answer.", text) for text in _of_shim()),
        *(_row(when, text) for when, text in LINES),
    ]
    for part in PARTS:
        lines += ["", f"## {part.title}", "", part.intro, "", "| message | in |", "|---|---|"]
        lines += [f"| {_cell(text)} | `{where}` |" for text, where in messages_of(part)]
    return "\n".join([*lines, ""])


@cache
def messages_of(part: Part) -> tuple[tuple[str, str], ...]:
    """Return messages and the files that contain them, in the order of the code, each once."""
    found: dict[str, str] = {}
    for pattern in part.files:
        for path in sorted(CHECKOUT.glob(pattern)):
            for text in _messages_in(_parsed(path), part):
                found.setdefault(text, str(path.relative_to(CHECKOUT)))
    return tuple(found.items())


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _of_shim() -> list[str]:
    """Return the messages of job_submit.lua itself."""
    return re.findall(r'say\("(RAD: [^"]*)"', (CHECKOUT / "slurm_plugin" / "lua" / "rad.lua").read_text())


def _messages_in(tree: ast.Module, part: Part) -> Iterator[str]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        assigned = sorted(_assigned(function), key=lambda one: one[0])
        parts = {
            part for node in ast.walk(function) if isinstance(node, ast.JoinedStr) for part in node.values
        }
        for node in ast.walk(function):
            if not isinstance(node, ast.Call | ast.Name | ast.Constant | ast.JoinedStr | ast.IfExp):
                continue  # no call and no text
            known = {name: text for at, name, text in assigned if at <= node.lineno}  # the last above counts
            if isinstance(node, ast.Call) and _name(node.func) in part.calls:
                values: dict[int | str | None, ast.expr] = {each.arg: each.value for each in node.keywords}
                values |= enumerate(node.args)
                given = [values.get(at) for at in part.texts]
                yield from _worth_telling([_text(value, known) for value in given if value is not None])
            elif (
                "RAD: " in part.calls
                and node not in parts
                and (_text(node, known) or "").startswith(("RAD: ", "print RAD: "))
            ):
                yield from _worth_telling([_text(node, known)])


def _worth_telling(reported: list[str | None]) -> Iterator[str]:
    texts = [text for text in reported if text]
    if any(re.search(r"[a-z]{2,}", re.sub(r"<[^>]*>|^RAD: ", "", text)) for text in texts):
        yield "; ".join(texts)


def _assigned(function: ast.FunctionDef) -> Iterator[tuple[int, str, str | None]]:
    """Yield a function's assignments, as in `problem, fix = "...", f"..."`: line, name, the text if it is one."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            both = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
            pairs = zip(target.elts, node.value.elts, strict=False) if both else [(target, node.value)]  # type: ignore[attr-defined]
            for name, value in pairs:
                if isinstance(name, ast.Name):
                    yield node.lineno, name.id, _text(value, {})


def _text(node: ast.AST, known: Mapping[str, str | None]) -> str | None:
    """Return the text of an expression; None if it is composed elsewhere."""
    match node:
        case ast.Name(id=name):
            return known.get(name)
        case ast.Constant(value=str() as text):
            return re.sub(r"%[sdrg]", "<...>", text)
        case ast.JoinedStr(values=values):
            return "".join(
                str(part.value) if isinstance(part, ast.Constant) else f"<{_name(part.value)}>"  # type: ignore[attr-defined]
                for part in values
            )
        case ast.IfExp(body=body, orelse=other):
            either = [text for text in (_text(body, known), _text(other, known)) if text]
            return " / ".join(either) or None
    return None


def _name(node: ast.expr) -> str:
    """Return one word for the subject of an expression."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(args=[first, *_]):
            return _name(first)
        case ast.Call(func=function) | ast.Subscript(value=function):
            return _name(function)
    return "..."


def _row(docstring: str, text: str) -> str:
    when = docstring.partition("\n")[0].removeprefix("Say that ").removeprefix("Say ").rstrip(".")
    return (
        f"| {when[0].upper() + when[1:] if when[0].isalpha() and '=' not in when else when} | {_cell(text)} |"
    )


def _cell(text: str) -> str:
    return "`" + " ".join(text.replace("`", "'").split()).replace("|", "\\|") + "`"
