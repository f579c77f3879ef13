"""Clusters on which no GPU can be shared: each reported in one line; what Slurm would refuse is not requested."""

from __future__ import annotations

import pytest

from slurm_plugin.slurm.obstacles import obstacles
from slurm_plugin.slurm.versions import Version

RIGHT = {"grestypes": "gpu,shard", "jobsubmitplugins": "lua"}


@pytest.mark.parametrize("version", [(22, 5, 0), (22, 5, 8), (24, 11, 5), (26, 5, 5)])
@pytest.mark.parametrize(
    "settings",
    [RIGHT, {}, {"grestypes": "Shard, gpu", "jobsubmitplugins": "all_partitions,job_submit/lua"}],
    ids=["right", "slurm.conf not to be read", "spelled otherwise"],
)
def test_nothing_is_in_the_way_of_a_right_cluster(version: Version, settings: dict[str, str]) -> None:
    assert obstacles(version, settings) == ()


@pytest.mark.parametrize(
    ("node_gres", "leave_jobs"),
    [
        ((), False),
        (("gpu:4",), True),
        (("gpu:4", "gpu:a100:2,nvme:1"), True),
        (("gpu:4", "gpu:2,shard:80"), False),
        (("gpu:4,shard:a100:160",), False),
    ],
)
def test_shards_that_no_node_has_are_not_requested(node_gres: tuple[str, ...], leave_jobs: bool) -> None:
    assert [one.leave_jobs for one in obstacles((24, 11, 5), RIGHT, node_gres)] == [True] * leave_jobs


@pytest.mark.parametrize(
    ("version", "settings", "words", "leave_jobs"),
    [
        ((21, 8, 8), RIGHT, "21.08 is older than 22.05", True),
        ((26, 11, 0), RIGHT, "26.11 is newer than 26.05", False),
        ((24, 11, 5), {**RIGHT, "grestypes": "gpu"}, "GresTypes has no shard", True),
        ((24, 11, 5), {"jobsubmitplugins": "lua"}, "GresTypes has no shard", True),
        ((24, 11, 5), {**RIGHT, "jobsubmitplugins": "all_partitions"}, "JobSubmitPlugins has no lua", False),
    ],
)
def test_each_obstacle_is_one_line(
    version: Version, settings: dict[str, str], words: str, leave_jobs: bool
) -> None:
    (found,) = obstacles(version, settings)
    assert words in found.text and "\n" not in found.text
    assert found.leave_jobs == leave_jobs


def test_a_type_that_no_node_names_at_its_shards_leaves_every_job_alone() -> None:
    settings = {"grestypes": "gpu,shard", "jobsubmitplugins": "lua"}
    nodes = ["gpu:a100:4,shard:a100:152", "gpu:h200:8,shard:1104"]
    assert obstacles((24, 11, 5), settings, nodes, ["A100"]) == ()
    (found,) = obstacles((24, 11, 5), settings, nodes, ["a100", "h200"])
    assert found.leave_jobs and "shard:h200" in found.text
    assert obstacles((24, 11, 5), settings, [], ["h200"]) == (), "the nodes may stand elsewhere"
