"""rad-estimate: how much GPU memory a training job will need, before it is submitted.

| exit status | means |
|---|---|
| 0 | fine |
| 1 | a finding: the job does not fit on one GPU of that type |
| 2 | usage: an option or a file is wrong; one line names it and the fix |
| 3 | a bug of ours: its traceback is in the file that the line names |
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from enum import IntEnum
from pathlib import Path
from typing import NoReturn

import click

from gpumemnet.cli import answer, report
from gpumemnet.directives.parse import Directives, parse_script
from gpumemnet.directives.values import LEAST_CONFIDENCE, MOST_CONFIDENCE
from gpumemnet.errors import GpuMemNetError, SetupError
from gpumemnet.estimators.registry import DEFAULT, NAMES
from gpumemnet.gpus import DEFAULT_GPU, gpu_named
from gpumemnet.names import OPTIMIZERS, PRECISIONS
from gpumemnet.texts.files import read_text
from gpumemnet.training import TrainingSetup
from gpumemnet.units import to_mib_nearest, to_mib_up

PROGRAM = "rad-estimate"
_COUNT = click.IntRange(1, 1 << 30)


class Exit(IntEnum):
    """Exit statuses; the table above says what they mean."""

    FINDINGS = 1
    USAGE = 2
    BUG = 3


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("summary", required=False)
@click.option("--batch-size", type=_COUNT, help="Samples per step and GPU; default: the summary's own.")
@click.option("--seq-len", type=_COUNT, help="Tokens per sample, for summaries that do not show it.")
@click.option("--optimizer", type=click.Choice([name.value for name in OPTIMIZERS]), help="Default: adam.")
@click.option("--precision", type=click.Choice([name.value for name in PRECISIONS]), help="Default: fp32.")
@click.option(
    "--gradient-checkpointing", is_flag=True, help="Blocks run again in backward instead of being kept."
)
@click.option("--gpu", default=DEFAULT_GPU, show_default=True, help="Type of GPU.")
@click.option(
    "--estimator",
    type=click.Choice(NAMES),
    default=DEFAULT,
    show_default=True,
    help="Which estimator to ask; faketensor needs --module.",
)
@click.option(
    "--module", help="Trace a real model instead: pkg.mod:function or file.py:function. Needs PyTorch."
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    help="An input's shape: 128x3x224x224; --module: [name=]SHAPE[:dtype].",
)
@click.option(
    "--confidence",
    type=click.FloatRange(LEAST_CONFIDENCE, MOST_CONFIDENCE),
    help="Share of jobs for which what is booked shall be enough. Default: the estimator's bound.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--explain", is_flag=True, help="Say where the memory goes and what was assumed.")
@click.option("--sbatch", is_flag=True, help="Print the lines to add to the job script.")
@click.option(
    "--save", type=click.Path(path_type=Path), help="Where to write what a script's run came to, as m.rad."
)
@click.version_option(package_name="rad-slurm")
@click.pass_obj
def command(script: tuple[str, ...] | None, /, **options: object) -> None:
    """Estimate the GPU memory of a training job.

    SUMMARY is the saved text of torchinfo.summary(), torchsummary.summary(), print(model) or Keras model.summary(),
    a file that gpumemnet.save() wrote, or a job script with #RAD lines.

    rad-estimate [OPTIONS] -- python train.py ... runs a training script, as it is, on a GPU that is not there until its
    optimizer has made two steps; nothing of it is trained. Its Python needs PyTorch.
    """
    finding = _run(script=script or (), **options)  # type: ignore[arg-type]
    if finding is not None:
        _fail(Exit.FINDINGS, finding)


def main() -> None:
    """Run the command; whatever goes wrong is one line on stderr and an exit status of the table above."""
    try:
        own, script = _split(sys.argv[1:])
        command(own, prog_name=PROGRAM, standalone_mode=False, obj=script)
    except GpuMemNetError as exc:
        _fail(Exit.USAGE, str(exc))
    except click.ClickException as exc:
        _fail(Exit.USAGE, f"{exc.format_message()}; see {PROGRAM} --help")
    except click.Abort:
        sys.exit(Exit.FINDINGS)
    except BrokenPipeError:  # whoever read our output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Exit.FINDINGS)
    except Exception as exc:  # noqa: BLE001 - the guard of this program: a bug is one line, too
        from gpumemnet.cli import bug_log  # only a bug needs it

        where = bug_log.keep(PROGRAM, sys.argv[1:], exc)
        _fail(Exit.BUG, f"a bug of ours, please report it: {type(exc).__name__}: {exc}; {where}")


def _split(words: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """Return our own words, and those of the script behind `--`."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], tuple(words[at + 1 :])


def _fail(status: Exit, line: str) -> NoReturn:
    click.echo(f"{PROGRAM}: {' '.join(line.split())}", err=True)
    sys.exit(status)


def _run(
    *,
    script: tuple[str, ...],
    summary: str | None,
    batch_size: int | None,
    seq_len: int | None,
    optimizer: str | None,
    precision: str | None,
    gradient_checkpointing: bool,
    gpu: str,
    estimator: str,
    module: str | None,
    inputs: tuple[str, ...],
    confidence: float | None,
    as_json: bool,
    explain: bool,
    sbatch: bool,
    save: Path | None,
) -> str | None:
    """Print the answer; return what is wrong with it, or None."""
    given = {
        "batch_size": batch_size,
        "seq_len": seq_len,
        "optimizer": optimizer,
        "precision": precision,
        "gradient_checkpointing": gradient_checkpointing or None,
    }
    said = _directives(summary)
    given = {key: value for key, value in given.items() if value is not None}
    setup = replace(said.setup, **given, stated=said.setup.stated | set(given))  # type: ignore[arg-type]
    if module:
        if str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        result = answer.for_module(module, inputs, setup, gpu=gpu, estimator=estimator)
        warnings: tuple[str, ...] = ()
    elif script:
        result, warnings = answer.for_script(script, setup, gpu=gpu, save=save)
    else:
        if said.model is None:
            raise SetupError("name a model summary, a job script, or --module; see --help")
        setup = replace(setup, input_shape=_shape(inputs))
        result, warnings = answer.for_summary(said.model, setup, gpu=gpu, estimator=estimator)
    said = replace(said, setup=setup, confidence=confidence or said.confidence)
    if said.confidence == "auto":
        warnings = (*warnings, "confidence=auto: the partition decides what is booked; the bound is shown")
    booked = report.Booked.of(result, None if isinstance(said.confidence, str) else said.confidence)
    if as_json:
        text = report.as_json(result, booked, warnings)
    elif explain:
        text = report.as_explanation(result, booked, setup, warnings)
    elif sbatch:
        text = report.as_sbatch(result, booked, said, warnings)
    else:
        text = report.as_text(result, booked, warnings)
    click.echo(text)
    card = gpu_named(gpu)
    if result.upper_bytes <= card.memory_bytes:
        return None
    asked, there = to_mib_up(result.upper_bytes), to_mib_nearest(card.memory_bytes)
    return (
        f"{asked} MiB do not fit on one {card.name} of {there} MiB; "
        "try a smaller batch size, gradient checkpointing or another precision"
    )


def _directives(summary: str | None) -> Directives:
    """Return what a job script says; a summary is a script that says only where the model is."""
    if summary is None:
        return Directives(setup=TrainingSetup())
    text = read_text(summary)
    said = parse_script(text, summary)
    if said is None:
        if text.startswith("#!"):
            raise SetupError(f"{summary}: it has no #RAD line; add #RAD model=FILE batch_size=N")
        return Directives(setup=TrainingSetup(), model=summary)
    if said.model is None:
        raise SetupError(f"{summary}: no model= in its #RAD lines; add model=FILE")
    beside = Path(summary).parent / said.model
    if not Path(said.model).exists() and beside.exists():
        return replace(said, model=str(beside))
    return said


def _shape(inputs: tuple[str, ...]) -> tuple[int, ...] | None:
    if not inputs:
        return None
    words = inputs[0].lower().split("x")
    if len(inputs) > 1 or not all(word.isascii() and word.isdigit() and int(word[:12]) > 0 for word in words):
        raise SetupError(f"--input {inputs[0][:40]} is not a shape; write for example --input 128x3x224x224")
    return tuple(int(word) for word in words)
