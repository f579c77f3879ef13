"""A change of one value leaves the rest of the site's line as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_plugin.admin.doctor.fixes import record, setting
from slurm_plugin.slurm.files.conf_lines import read_conf


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("GresTypes=gpu\n", "GresTypes=gpu,shard\n"),
        ("  grestypes = gpu   # GresTypes=none\n", "  GresTypes=gpu,shard   # GresTypes=none\n"),
        ('GresTypes="gpu" # both\n', "GresTypes=gpu,shard # both\n"),
        ("GresTypes=gpu,\\\nmps # two\nX=1\n", "GresTypes=gpu,shard\nX=1\n"),
        ("GresTypes=a\nGresTypes=gpu\n", "GresTypes=a\nGresTypes=gpu,shard\n"),
        ("#GresTypes=gpu\n", "#GresTypes=gpu\nGresTypes=gpu,shard\n"),
    ],
)
def test_a_setting(tmp_path: Path, before: str, after: str) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text(before)
    assert setting(read_conf(path), path, "GresTypes", "gpu,shard").applied(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("NodeName=n Gres=gpu:4 CPUs=2\n", "NodeName=n Gres=gpu:4,shard:8 CPUs=2\n"),
        ("NodeName=n CPUs=2\n", "NodeName=n CPUs=2 Gres=gpu:4,shard:8\n"),
        ("NodeName=n CPUs=2 # Gres=gpu:1\n", "NodeName=n Gres=gpu:4,shard:8 CPUs=2 # Gres=gpu:1\n"),
        (
            "NodeName=n \\\n  Gres=gpu:4 \\\n  CPUs=2 # two\n",
            "NodeName=n \\\n  Gres=gpu:4,shard:8 \\\n  CPUs=2 # two\n",
        ),
        ("NodeName=n \\\n  CPUs=2\n", "NodeName=n Gres=gpu:4,shard:8 \\\n  CPUs=2\n"),
        ("NodeName=n Gres=gpu:4\\\n  CPUs=2\n", "NodeName=n Gres=gpu:4,shard:8  CPUs=2\n"),
    ],
)
def test_a_nodes_line(tmp_path: Path, before: str, after: str) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text(before)
    conf = read_conf(path)
    assert conf is not None
    assert record(conf, 0, path, "Gres", "gpu:4,shard:8").applied(before) == after
