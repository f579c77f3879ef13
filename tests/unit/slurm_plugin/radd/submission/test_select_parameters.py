"""What slurm.conf says counts once slurmctld runs with it, and no longer than it says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fakes import FakeSlurm

from slurm_plugin.core.config.load import Config, Paths
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.radd.submission.prepare import prepared
from slurm_plugin.radd.submission.select_parameters import SelectParameters

PLAIN = "CR_Core_Memory,LL_SHARED_GRES"
SPREADS = f"{PLAIN},MULTIPLE_SHARING_GRES_PJ"


class Site:
    """slurm.conf, the slurmctld that was started with it, and radd's eyes."""

    def __init__(self, folder: Path, parameters: str) -> None:
        self.conf = folder / "slurm.conf"
        self.config = Config(paths=Paths(slurm_conf=str(self.conf)))
        self.writes = 0
        self.write(parameters)
        self.seen = SelectParameters(FakeSlurm())
        self.restart()

    def write(self, parameters: str) -> None:
        self.conf.write_text(
            f"GresTypes=gpu,shard\nSelectTypeParameters={parameters}\nNodeName=n Gres=gpu:2,shard:8\n"
        )
        self.writes += 1
        os.utime(self.conf, (self.writes, self.writes))

    def restart(self) -> None:
        text = self.conf.read_text().split("SelectTypeParameters=")[1].split("\n")[0]
        self.slurm = FakeSlurm(version=(24, 11, 5), SelectTypeParameters=text.upper())
        self.seen._slurm = self.slurm

    @property
    def max_shard_gpus(self) -> int:
        self.seen.look(self.config)
        made, _ = prepared(self.config, (24, 11, 5), key=b"", peaks=None, running=self.seen.running)
        return made.max_shard_gpus


def test_a_new_word_counts_once_slurmctld_was_started_with_it(tmp_path: Path) -> None:
    site = Site(tmp_path, PLAIN)
    assert site.max_shard_gpus == 0
    site.write(SPREADS)
    assert site.max_shard_gpus == 0, "slurmctld would refuse a job of two GPUs that requests shards"
    site.restart()
    assert site.max_shard_gpus == 2


def test_a_word_that_was_taken_out_counts_no_more(tmp_path: Path) -> None:
    site = Site(tmp_path, SPREADS)
    assert site.max_shard_gpus == 2
    site.write(PLAIN)
    assert site.max_shard_gpus == 0


def test_a_file_that_slurm_conf_includes_counts_from_its_change_on(tmp_path: Path) -> None:
    site, included = Site(tmp_path, PLAIN), tmp_path / "partitions.conf"
    site.conf.write_text(site.conf.read_text() + "Include partitions.conf\n")

    def seen() -> list[bool]:
        return [site.seen.look(site.config) for _ in range(2)]

    assert seen() == [True, False]
    for at, text in enumerate(("", "PartitionName=a\n", "PartitionName=a DefMemPerGPU=1\n")):
        included.write_text(text)
        os.utime(included, (at, at))
        assert seen() == [True, False], text
    included.unlink()
    assert seen() == [True, False]
    site.conf.unlink()
    assert seen() == [True, False]


def test_while_slurmctld_is_silent_the_file_counts(tmp_path: Path) -> None:
    """It starts with what the file says, and until then nothing is submitted."""
    site = Site(tmp_path, SPREADS)
    site.seen._slurm = Silent()
    assert site.max_shard_gpus == 2
    site.seen._slurm = site.slurm
    assert site.seen.look(site.config), "its first answer is news"
    assert site.max_shard_gpus == 2
    assert not site.seen.look(site.config)


def test_a_site_without_the_setting_sends_slurmctld_no_query(tmp_path: Path) -> None:
    site = Site(tmp_path, PLAIN)
    Silent.queries, site.seen._slurm = 0, Silent()
    assert [site.seen.look(site.config) for _ in range(3)] == [True, False, False]
    assert Silent.queries == 0


class Silent(FakeSlurm):
    """A slurmctld that does not answer."""

    queries = 0

    def config(self) -> dict[str, str]:
        type(self).queries += 1
        raise SlurmError("no answer")


@pytest.mark.parametrize("missing", ["no file", "no setting"])
def test_without_a_setting_nothing_spreads(tmp_path: Path, missing: str) -> None:
    site = Site(tmp_path, PLAIN)
    if missing == "no file":
        site.conf.unlink()
    else:
        site.conf.write_text("GresTypes=gpu,shard\n")
    assert site.max_shard_gpus == 0
