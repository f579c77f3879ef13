"""What each command says of itself."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner
from golden_texts import Golden

from gpumemnet.cli import command as rad_estimate
from slurm_plugin.admin.cli import main as rad
from slurm_plugin.radd.__main__ import main as radd

COMMANDS: dict[str, click.Command] = {
    "rad": rad,
    **{f"rad {name}": command for name, command in rad.commands.items()},
    "rad-estimate": rad_estimate,
    "radd": radd,
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command(name: str, golden: Golden) -> None:
    result = CliRunner().invoke(COMMANDS[name], ["--help"], prog_name=name, terminal_width=100)
    assert result.exit_code == 0
    golden(f"help/{name.replace(' ', '-')}.txt", result.output)
