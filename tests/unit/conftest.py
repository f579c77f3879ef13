"""What the tests of single modules share."""

from __future__ import annotations

from contextlib import suppress

import pytest


@pytest.fixture(autouse=True)
def rad_toml_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a busy machine take its time over a file; the limit has tests of its own (test_last_good.py)."""
    with suppress(ImportError):  # an environment for models alone
        monkeypatch.setattr("slurm_plugin.core.config.timed_read.READ_S", 30.0)
