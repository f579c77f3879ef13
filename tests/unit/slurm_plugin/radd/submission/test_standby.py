"""Which controller may lack shards after a takeover: before 23.11 with a standby, and while its nodes show none."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import FakeClock, FakeSlurm

from slurm_plugin.core.config.load import Config, Paths
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.radd.submission.standby import UNSURE_S, Standby
from slurm_plugin.slurm.control import NodeView

OLD, NEW = (22, 5, 8), (24, 11, 5)
PAIR = "SlurmctldHost=a(10.0.0.1)\nSlurmctldHost=b\n"


class Nodes(FakeSlurm):
    """Slurm with nodes of such Gres; None for one that does not answer."""

    each: tuple[str, ...] | None = ("gpu:4,shard:160",)

    def nodes(self) -> tuple[NodeView, ...]:
        if self.each is None:
            raise SlurmError("slurmctld does not answer")
        return tuple(NodeView(name=f"n{n}", gres=gres) for n, gres in enumerate(self.each))


def made(
    folder: Path, version: tuple[int, int, int] = OLD, slurm_conf: str = PAIR
) -> tuple[Standby, Nodes, FakeClock, Config]:
    (folder / "slurm.conf").write_text(slurm_conf)
    config, slurm, clock = Config(paths=Paths(slurm_conf=f"{folder}/slurm.conf")), Nodes(), FakeClock()
    return Standby(slurm, version, config, clock), slurm, clock, config


@pytest.mark.parametrize(
    ("version", "slurm_conf", "unsure"),
    [
        (OLD, PAIR, True),
        (OLD, "ControlMachine=a\nBackupController=b\n", True),
        (OLD, "SlurmctldHost=a\n", False),
        (OLD, "SlurmctldHost=a\nSlurmctldHost=a(10.0.0.1)\n", False),
        (NEW, PAIR, False),
    ],
)
def test_what_is_heard_first_may_come_of_a_takeover(
    tmp_path: Path, version: tuple[int, int, int], slurm_conf: str, unsure: bool
) -> None:
    standby, _, clock, _ = made(tmp_path, version, slurm_conf)
    clock.sleep(3600)  # it waits, and hears nothing
    assert standby.may_lack_shards() is unsure
    clock.sleep(UNSURE_S - 1)
    assert standby.may_lack_shards() is unsure
    clock.sleep(1)
    assert standby.may_lack_shards() is False


def test_jobs_keep_their_gpu_until_a_node_shows_shards(tmp_path: Path) -> None:
    standby, slurm, clock, config = made(tmp_path)
    standby.may_lack_shards()
    clock.sleep(UNSURE_S)
    slurm.each = ("gpu:a100:4,shard:a100:0", "")
    assert standby.look(config) and standby.may_lack_shards()
    assert not standby.look(config), "nothing new"
    slurm.each = None
    assert not standby.look(config) and standby.may_lack_shards(), "no slurmctld is in charge"
    slurm.each = ("gpu:4,shard:0", "gpu:4,shard:160")
    assert standby.look(config) and not standby.may_lack_shards()


def test_a_standby_that_is_taken_out_of_slurm_conf_counts_no_more(tmp_path: Path) -> None:
    standby, slurm, _, config = made(tmp_path)
    slurm.each = ("shard:0",)
    assert standby.look(config) and standby.may_lack_shards()
    (tmp_path / "slurm.conf").write_text("SlurmctldHost=a\n")
    assert standby.look(config) and not standby.may_lack_shards()
