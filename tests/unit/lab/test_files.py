"""How the private cluster's files are changed while its daemons run."""

from __future__ import annotations

from pathlib import Path

from lab.files import rewrite


def test_a_reader_of_a_file_that_is_being_changed_reads_it_whole(tmp_path: Path) -> None:
    """slurmd 26.05 ended at a slurm.conf that was emptied and not yet written."""
    path = tmp_path / "slurm.conf"
    path.write_text("ClusterName=before\n")
    path.chmod(0o640)
    with path.open() as reads:
        rewrite(path, "ClusterName=after\n")
        assert reads.read() == "ClusterName=before\n"
    assert path.read_text() == "ClusterName=after\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]
