"""Job ids as people copy them from squeue."""

from __future__ import annotations

import pytest

from slurm_plugin.core.errors import ConfigError, SlurmError
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.queries import job_ids
from slurm_plugin.slurm.queries.job_ids import job_id_of


class Slurm(SlurmCommands):
    """Prints one table for squeue and one for sacct."""

    def __init__(self, squeue: str | SlurmError = "", sacct: str = "") -> None:
        self.listed, self.printed = squeue, sacct

    def columns(self, *_: object) -> bytes:
        if isinstance(self.listed, SlurmError):
            raise self.listed
        return self.listed.encode()

    def sacct(self, *_: object, **__: object) -> bytes:
        return self.printed.encode()


def found_id(monkeypatch: pytest.MonkeyPatch, slurm: Slurm, text: str, *, accounts: bool = True) -> int:
    monkeypatch.setattr(job_ids, "SlurmCommands", lambda **_: slurm)
    monkeypatch.setattr(job_ids, "sacct", slurm.sacct)
    return job_id_of(text, accounts=accounts)


def row(job: str, shown: str, gap: int = 0) -> str:
    return f"{job:<20}{' ' * gap}{shown:<64}{' ' * gap}\n"


FORGOTTEN = SlurmError("squeue: slurm_load_jobs error: Invalid job id specified")


def test_a_task_has_a_number_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found_id(monkeypatch, Slurm(row("14", "11_3") + row("11", "11_4")), "11_3") == 14
    assert found_id(monkeypatch, Slurm(FORGOTTEN, row("14", "11_3", gap=1)), "11_3") == 14
    assert found_id(monkeypatch, Slurm(SlurmError("away")), "113") == 113


@pytest.mark.parametrize("text", ["0", "-1", "1_1_3", "11_", "x", "1" * 12, "\u0663"])
def test_what_is_no_job_id_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    with pytest.raises(ConfigError, match="is no job id"):
        found_id(monkeypatch, Slurm(), text)


def test_a_task_that_is_not_known_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"does not know task 11_3; .* the array's id, 11"):
        found_id(monkeypatch, Slurm(row("11", "11_[3-4]")), "11_3")
    with pytest.raises(ConfigError, match="does not know task 11_3"):
        found_id(monkeypatch, Slurm(FORGOTTEN), "11_3", accounts=False)
    with pytest.raises(SlurmError, match="away"):
        found_id(monkeypatch, Slurm(SlurmError("away")), "11_3")
