"""Every command that the documents tell their reader to type is tried, or says why it cannot be."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from documents import SHOWN, TRIALS, RunBy, blocks_of, commands_of, document, is_typed, unknown_lines
from paths import CHECKOUT

from gpumemnet.cli.rad_estimate import command as rad_estimate


@pytest.mark.parametrize("name", TRIALS)
def test_each_command_has_a_trial_and_each_trial_a_command(name: str) -> None:
    typed = set(commands_of(document(name)))
    assert typed - set(TRIALS[name]) == set(), "say in tests/documents.py how it is tried"
    assert set(TRIALS[name]) - typed == set(), "tests/documents.py names a command that is gone"


def test_every_page_of_the_admins_manual_is_looked_at() -> None:
    pages = {str(path.relative_to(CHECKOUT)) for path in CHECKOUT.glob("docs/admin/*.md")}
    assert pages and pages - set(TRIALS) == set()


@pytest.mark.parametrize("name", TRIALS)
def test_what_runs_a_command_elsewhere_is_there(name: str) -> None:
    elsewhere = [trial for trial in TRIALS[name].values() if isinstance(trial, RunBy)]
    missing = [
        trial for trial in elsewhere if trial.words not in (CHECKOUT / trial.file).read_text(encoding="utf-8")
    ]
    assert not missing


@pytest.mark.parametrize("name", TRIALS)
def test_what_is_not_typed_is_known(name: str) -> None:
    """A block that begins with a program that no job thought of would pass for output."""
    others = [block[0] for block in blocks_of(document(name)) if not is_typed(block)]
    assert [line for line in others if not line.startswith(SHOWN[name])] == []


@pytest.mark.parametrize("name", TRIALS)
def test_no_command_stands_unnoticed_between_others(name: str) -> None:
    """README copied the cluster's key to login nodes, by a program that no test looked for."""
    assert unknown_lines(document(name)) == []


COPIES = [
    command
    for name in TRIALS
    for command in commands_of(document(name))
    if command.startswith(("clush ", "rsync ")) and " /etc/rad" in command
]

SITE = tuple(
    f"etc/slurm/{name}"
    for name in ("slurm.conf", "gres.conf", "cli_filter.lua", "job_submit.lua", "rad/rad.lua")
)
SECRETS = tuple(
    f"etc/slurm/{name}" for name in ("slurmdbd.conf", "slurmdbd.conf~", "jwt_hs256.key", "slurm.key")
)
"""Files that a site has next to slurm.conf, and that open its database or its cluster."""


@pytest.mark.parametrize("command", COPIES)
def test_a_copy_to_other_machines_has_what_rad_needs_and_no_secret(command: str, tmp_path: Path) -> None:
    """README copied /etc/slurm as it was: with slurmdbd.conf, and so the database's password, where it is."""
    for name in ("etc/rad/rad.toml", "etc/rad/key", *SITE, *SECRETS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    words = command.replace(" /etc/", f" {tmp_path}/etc/")
    expanded = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {words}"], capture_output=True, text=True, check=True
    )
    sources = [Path(word) for word in expanded.stdout.splitlines() if word.startswith(str(tmp_path))]
    below = [path for source in sources for path in (source, *source.rglob("*")) if path.is_file()]
    copied = {str(path.relative_to(tmp_path)) for path in below}
    if "--exclude=/etc/rad/key" in command:
        copied -= {"etc/rad/key"}
    key = {"etc/rad/key"} if " -w gpu" in command else set()
    assert copied == {"etc/rad/rad.toml", *SITE} | key


def test_gpu_nodes_and_login_nodes_are_copied_to() -> None:
    assert [" -w gpu" in command for command in COPIES] == [True, False]


def test_rad_estimate_says_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a document shows rad-estimate's answer for a file of the repository."""
    monkeypatch.chdir(CHECKOUT)
    monkeypatch.setenv("RAD_CONFIG", "/nowhere/rad.toml")
    blocks = [
        block for path in sorted(CHECKOUT.glob("docs/*.md")) for block in blocks_of(path.read_text("utf-8"))
    ]
    shown = {block[0]: block[1:] for block in blocks if block[0].startswith("$ rad-estimate examples/")}
    said = {
        command: CliRunner().invoke(rad_estimate, shlex.split(command)[2:]).output.splitlines()
        for command in shown
    }
    assert shown and said == shown


def test_commands_are_found_in_every_kind_of_block() -> None:
    text = """
```
rad top      # live
some output
```

    PYTHONPATH=. python bench/x.py --a 1

- in a list

  ```
  $ sbatch job.sh
  Submitted batch job 1
  ```

```toml
rad = 1
```

```bash
#!/bin/bash
rad not --typed
```
"""
    assert unknown_lines(text) == ["some output"]
    assert commands_of(text) == ["rad top", "sbatch job.sh", "PYTHONPATH=. python bench/x.py --a 1"]
