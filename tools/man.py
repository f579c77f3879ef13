"""Generate man pages and shell completions from the commands' help texts: `python -m tools.man FOLDER`.

The packages for a cluster's machines contain them (tools/packages.py). Needs a Python that has click and the project.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from gpumemnet.cli.rad_estimate import command as rad_estimate
from slurm_plugin.admin.cli import main as rad

PROGRAMS: dict[str, click.Command] = {"rad": rad, "rad-estimate": rad_estimate}
STATUS = (
    ("0", "All is well."),
    ("1", "A finding: a job does not fit or is refused, or something is not as it should be."),
    ("2", "An option or a file is wrong; each mistake has a line."),
    ("3", "An internal error; the line names the file with its traceback."),
)
COMPLETIONS = {
    "bash": "share/bash-completion/completions/{}",
    "zsh": "share/zsh/vendor-completions/_{}",
    "fish": "share/fish/vendor_completions.d/{}.fish",
}
"""Where distributions look for completions, below /usr."""


def pages() -> dict[str, str]:
    """Return each man page by its file name."""
    return {f"{name}.1": page(name, program) for name, program in PROGRAMS.items()}


def page(name: str, program: click.Command) -> str:
    """Return a man page in the language of man(7)."""
    context = click.Context(program, info_name=name, **program.context_settings)
    lines = [
        f'.TH {_plain(name.upper())} 1 "" "RAD for Slurm"',
        ".SH NAME",
        f"{_plain(name)} \\- {_plain(program.get_short_help_str(200).rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_plain(name)}",
        _plain(" ".join(program.collect_usage_pieces(context))),
        ".SH DESCRIPTION",
        *_paragraphs(program.help or ""),
        ".SH OPTIONS",
        *_options(program, context),
    ]
    if isinstance(program, click.Group):
        lines.append(".SH COMMANDS")
        for each, command in sorted(program.commands.items()):
            below = click.Context(command, info_name=each, parent=context, **command.context_settings)
            usage = " ".join(command.collect_usage_pieces(below))
            lines += [f".SS {_plain(f'{name} {each} {usage}')}", *_paragraphs(command.help or "")]
            lines += [*_options(command, below)]
    if program.epilog:
        examples = program.epilog.replace("\b", "").partition("Exit status:")[0]
        shown = [_plain(line) for line in examples.splitlines() if line.strip() not in ("", "Examples:")]
        lines += [".SH EXAMPLES", ".nf", *shown, ".fi"]
    lines.append(".SH EXIT STATUS")
    for status, means in STATUS:
        lines += [".TP", f".B {status}", _plain(means)]
    return "\n".join([*lines, ""])


def completions() -> dict[str, str]:
    """Return each completion by its path below /usr."""
    made = {}
    for shell, place in COMPLETIONS.items():
        kind = get_completion_class(shell)
        assert kind is not None, shell
        for name, program in PROGRAMS.items():
            variable = f"_{name.replace('-', '_').upper()}_COMPLETE"
            source = kind(program, {}, name, variable)
            made[place.format(name)] = source.source_template % source.source_vars()
    return made


def main(folder: Path) -> None:
    """Write all man pages and completions below a folder that stands for /usr."""
    files = {f"share/man/man1/{name}": text for name, text in pages().items()} | completions()
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            yield from (".TP", f".B {_plain(record[0])}", _plain(record[1]) or "\\&")


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.replace("\b", "").strip())):
        if number:
            yield ".PP"
        yield _plain(" ".join(paragraph.split()))


def _plain(text: str) -> str:
    r"""Return text escaped so that man(7) shows it unchanged.

    >>> _plain("--gpu 'x'"), _plain(".rad")
    ('\\-\\-gpu \\(aqx\\(aq', '\\&.rad')
    """
    shown = " ".join(text.split("\n")).replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return f"\\&{shown}" if shown.startswith(".") else shown


if __name__ == "__main__":
    main(Path(sys.argv[1]))
