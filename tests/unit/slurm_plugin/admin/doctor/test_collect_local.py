from __future__ import annotations

from collections.abc import Sequence

import pytest

from slurm_plugin.admin.doctor import collect_local
from slurm_plugin.core.errors import CommandError

SHOWN = {
    "radd": "LoadState=loaded\nActiveState=failed\n",
    "rad-monitor": "LoadState=not-found\nActiveState=inactive\n",
}


def test_a_unit_that_is_not_installed_is_distinguished_from_one_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def systemctl(argv: Sequence[str], *, timeout_s: float) -> str:
        return SHOWN[argv[-1]]

    monkeypatch.setattr(collect_local, "run", systemctl)
    assert collect_local.units() == {"radd": "failed", "rad-monitor": "missing"}


def test_without_systemd_nothing_is_said_of_units(monkeypatch: pytest.MonkeyPatch) -> None:
    def systemctl(argv: Sequence[str], *, timeout_s: float) -> str:
        raise CommandError(tuple(argv), 1, "System has not been booted with systemd as init system")

    monkeypatch.setattr(collect_local, "run", systemctl)
    assert collect_local.units() == {}
