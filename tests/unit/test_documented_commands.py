"""Every command that the documents tell their reader to type is tried, or says why it cannot be."""

from __future__ import annotations

import shlex

import pytest
from click.testing import CliRunner
from documents import SHOWN, TRIALS, RunBy, blocks_of, commands_of, document, is_typed
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
    assert commands_of(text) == ["rad top", "sbatch job.sh", "PYTHONPATH=. python bench/x.py --a 1"]
