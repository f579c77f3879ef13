"""What each command says of itself."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner
from golden_texts import Golden

from gpumemnet.cli.rad_estimate import command as rad_estimate
from slurm_plugin.admin.cli import main as rad
from slurm_plugin.radd.__main__ import main as radd

PROGRAMS: dict[str, click.Command] = {"rad": rad, "rad-estimate": rad_estimate, "radd": radd}
COMMANDS = [*PROGRAMS, *(f"rad {name}" for name in rad.commands)]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command(name: str, golden: Golden) -> None:
    # Through the program, as people ask: click remembers the options of its first caller.
    program, *words = name.split()
    result = CliRunner().invoke(PROGRAMS[program], [*words, "--help"], prog_name=program, terminal_width=100)
    assert result.exit_code == 0
    golden(f"help/{name.replace(' ', '-')}.txt", result.output)
