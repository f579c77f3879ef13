from __future__ import annotations

from pathlib import Path

import pytest

from slurm_plugin.slurm.files.conf_lines import ConfFile, expand, read_conf


def test_slurms_files_are_read_as_slurm_does(tmp_path: Path) -> None:
    (tmp_path / "nodes.conf").write_text("NodeName=n[1-2] Gres=gpu:2,shard:278 \\\n  CPUs=4 # four\n")
    path = tmp_path / "slurm.conf"
    path.write_text(
        '# comment\nGresTypes = gpu,shard\ngrestypes=gpu\nClusterName="a b"\nInclude nodes.conf\nInclude none\n'
    )
    conf = read_conf(path)
    assert conf == ConfFile(
        settings={"grestypes": "gpu", "clustername": "a b"},
        lines=({"nodename": "n[1-2]", "gres": "gpu:2,shard:278", "cpus": "4"},),
    )
    assert read_conf(tmp_path / "none") is None


def test_lines_go_on_as_slurm_has_them_go_on(tmp_path: Path) -> None:
    """Each tried on 22.05.8: what Slurm refuses or takes, not what looks right."""
    (tmp_path / "slurm.conf").write_text(
        "# a comment does not go on \\\nClusterName=lab\n"
        "GresTypes=gpu,\\\nshard # none\nNodeName=n1 \\  \n Gres=gpu:4 \\ # four\n CPUs=2\n"
        "include %c_more.conf\n"
    )
    (tmp_path / "lab_more.conf").write_text("Prolog=/a\n")
    conf = read_conf(tmp_path / "slurm.conf")
    assert conf is not None
    assert conf.settings == {"clustername": "lab", "grestypes": "gpu,shard", "prolog": "/a"}
    assert conf.lines == ({"nodename": "n1", "gres": "gpu:4", "cpus": "2"},)


def test_a_last_line_that_would_go_on_ends_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("GresTypes=gpu,\\")
    conf = read_conf(tmp_path / "slurm.conf")
    assert conf is not None and conf.settings == {"grestypes": "gpu,"}


def test_a_setting_that_stands_there_twice(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("Prolog=/a\nEpilog=/c\nprolog = /b # site\n")
    conf = read_conf(tmp_path / "slurm.conf")
    assert conf is not None and conf.repeated == {"prolog": ("/a", "/b")}
    assert conf.settings_at["prolog"].raw == "prolog = /b # site"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("/dev/nvidia[0-2,7]", 4),
        ("n[1-2]x[1-3]", 6),
        ("one", 1),
        ("", 1),
        ("n[0-999999999]", 4096),
        ("n[1-2]" * 60, 4096),  # took 2^60 steps; this and the next the fuzzer found
        ("n[-]", 1),
        ("n[3-]", 1),
        ("n[1-2", 1),
        ("n[" + "9" * 40 + "]", 1),
    ],
)
def test_short_names(text: str, names: int) -> None:
    assert len(expand(text)) == names
