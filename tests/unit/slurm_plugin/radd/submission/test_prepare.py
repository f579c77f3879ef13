"""What radd reads of slurm.conf before it answers submissions."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_plugin.core.config.load import parse_config
from slurm_plugin.radd.submission.prepare import prepared
from slurm_plugin.radd.submission.submit import Submission

SHARDS = "GresTypes=gpu,shard\nSelectType=select/cons_tres\nNodeName=n0 Gres=gpu:2,shard:78\n"
KEY = b"k" * 32


def submission(folder: Path, slurm_conf: str) -> Submission:
    path = folder / "slurm.conf"
    path.write_text(f"{SHARDS}{slurm_conf}\n")
    tree = {
        "default_partition": "gpu",
        "paths": {"slurm_conf": str(path)},
        "partition": {"gpu": {"collocate": True, "gpu_memory_mib": 40000}},
    }
    made, _ = prepared(parse_config(tree, origin="rad.toml"), (22, 5, 8), key=KEY, peaks=None)
    return made


@pytest.mark.parametrize(
    ("plugins", "becomes_shards"),
    [
        ("lua", True),
        ("all_partitions,lua", True),
        ("lua,all_partitions", False),
        ("job_submit/lua,job_submit/all_partitions", False),
        ("require_timelimit,lua,partition", False),
        ("lua,require_timelimit", True),
    ],
)
def test_a_job_whose_partition_is_chosen_later_is_left_as_it_is(
    tmp_path: Path, plugins: str, becomes_shards: bool
) -> None:
    """It would start in any partition, with shards of this one: unplaced and without a limit."""
    made = submission(tmp_path, f"JobSubmitPlugins={plugins}")
    request = {"v": 1, "op": "submit", "user_id": 1000, "gres": "gres:gpu:1"}
    assert ("gres" in made.answer(made.parsed(request))["set"]) is becomes_shards
    assert "gres" in made.answer(made.parsed({**request, "partition": "gpu"}))["set"], (
        "it says where it starts"
    )
