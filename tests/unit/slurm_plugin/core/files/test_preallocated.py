from __future__ import annotations

from pathlib import Path

import pytest
from small_disks import fill, free, small_disk

from slurm_plugin.core.files.preallocated import SPARE_BYTES, SPARES, SpareFiles


def test_with_space_no_spare_file_is_touched(tmp_path: Path) -> None:
    spares = SpareFiles(tmp_path)
    spares.fill()
    spares.write(tmp_path / "a", b"content", mode=0o444)
    assert (tmp_path / "a").read_bytes() == b"content"
    spares.discard(tmp_path / "a")
    spares.discard(tmp_path / "a")
    assert not (tmp_path / "a").exists()
    assert len(list((tmp_path / "spare").iterdir())) == SPARES


def test_a_full_disk_still_takes_files_and_gets_its_spare_ones_back(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", f"size=1m,nr_inodes={SPARES + 10}") as folder:
        spares = SpareFiles(folder)
        spares.fill()
        fill(folder)
        for _ in range(2):
            paths = [folder / f"job-{number}" for number in range(SPARES)]
            for path in paths:
                spares.write(path, path.name.encode(), mode=0o400)
                assert path.read_bytes() == path.name.encode().ljust(SPARE_BYTES, b"\n")
                assert path.stat().st_mode & 0o777 == 0o400
            with pytest.raises(OSError, match="No space left"):
                spares.write(folder / "one too many", b"x")
            for path in paths:
                spares.discard(path)
        free(folder)
        spares.write(folder / "job-1", b"x")
        assert (folder / "job-1").read_bytes() == b"x"


def test_spare_files_are_laid_in_as_far_as_there_is_space(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=40k") as folder:
        SpareFiles(folder).fill()
        assert 0 < len(list((folder / "spare").iterdir())) < SPARES
        assert {path.stat().st_size for path in (folder / "spare").iterdir()} == {SPARE_BYTES}
