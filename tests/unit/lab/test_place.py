from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from lab.place import SOCKET_PATH_LIMIT, Place, home_of


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can enter, as a checkout in /home or /opt is; its path is short, as sockets need it."""
    with TemporaryDirectory(dir="/tmp") as name:
        yield opened(Path(name))


def opened(tmp_path: Path) -> Path:
    closed = [folder for folder in (tmp_path, *tmp_path.parents) if not folder.stat().st_mode & 0o001]
    for folder in closed:
        if folder.owner() != tmp_path.owner():
            pytest.skip(f"{folder} cannot be opened to others")
        folder.chmod(folder.stat().st_mode | 0o011)
    return tmp_path


def test_everything_lies_inside_an_open_checkout(open_folder: Path) -> None:
    checkout = open_folder / "rad"
    checkout.mkdir(mode=0o755)
    assert home_of(checkout) == (checkout / ".rad", None)


@pytest.mark.parametrize(
    ("name", "mode", "word"),
    [("rad", 0o700, "closed to other users"), ("my rad", 0o755, "slurm.conf"), ("rað", 0o755, "slurm.conf")],
)
def test_a_checkout_that_hooks_cannot_use_gets_another_place_and_a_line(
    open_folder: Path, name: str, mode: int, word: str
) -> None:
    checkout = open_folder / name
    checkout.mkdir()
    checkout.chmod(mode)
    home, line = home_of(checkout)
    assert home.parent == Path("/var/tmp")
    assert line is not None and word in line and str(home) in line


def test_a_long_path_leaves_space_for_sockets(open_folder: Path) -> None:
    checkout = open_folder / ("a" * 100)
    checkout.mkdir(mode=0o755)
    assert home_of(checkout)[0].parent == Path("/var/tmp")


def test_two_checkouts_never_share_a_place(open_folder: Path) -> None:
    homes = set()
    for name in ("one two", "one  two"):
        (open_folder / name).mkdir(mode=0o755)
        homes.add(home_of(open_folder / name)[0])
    assert len(homes) == 2


def test_real_gpus_need_space_for_the_sockets_of_mps(tmp_path: Path) -> None:
    near = Place(root=Path("/opt/rad"), venv=tmp_path)
    far = Place(root=Path("/opt/slurm/rad-for-slurm/.rad/demo"), venv=tmp_path)
    assert near.short_for_mps(tmp_path) is near
    short = far.short_for_mps(tmp_path)
    socket = short.run / "n0" / "mps" / f"GPU-{'x' * 36}" / "a51146d380770" / "pipe" / "control_privileged"
    assert len(str(socket)) <= SOCKET_PATH_LIMIT
    assert short.venv == far.venv
