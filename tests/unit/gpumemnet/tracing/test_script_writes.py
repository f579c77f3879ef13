"""Sixty programs that write in sixty ways: traced, each leaves every file as it was; without a trace, none does."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from gpumemnet.tracing.script.shield.shields import SHIELDS, Copies, Refusing

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[4]
NOBODY = 65534
PYTHON = {
    "open for writing": "open('old', 'w').write('new')",
    "append": "open('old', 'a').write('new')",
    "open for update": "open('old', 'r+').write('n')",
    "O_TRUNC": "os.open('old', os.O_WRONLY | os.O_TRUNC)",
    "read-only and O_TRUNC": "os.open('old', os.O_RDONLY | os.O_TRUNC)",
    "by a folder's descriptor": "os.open('old', os.O_RDWR | os.O_TRUNC, dir_fd=os.open('.', os.O_RDONLY))",
    "pwrite": "os.pwrite(os.open('old', os.O_RDWR), b'new', 0)",
    "truncate": "os.truncate('old', 1)",
    "ftruncate": "os.ftruncate(os.open('old', os.O_RDWR), 1)",
    "memory map": "m = mmap.mmap(os.open('old', os.O_RDWR), 0); m[:3] = b'new'; m.flush()",
    "replace": "open('new', 'w').write('new'); os.replace('new', 'old')",
    "rename away": "os.rename('old', 'older')",
    "rename a folder": "os.rename('folder', 'other')",
    "unlink": "os.unlink('old')",
    "rmtree": "shutil.rmtree('folder', ignore_errors=True)",
    "copy over": "shutil.copyfile(sys.executable, 'old')",
    "copytree over": "os.mkdir('t'); open('t/inside', 'w').close(); shutil.copytree('t', 'folder', dirs_exist_ok=True)",
    "move over": "open('t', 'w').close(); shutil.move('t', 'old')",
    "chmod": "os.chmod('old', 0o777)",
    "chmod of a folder": "os.chmod('folder', 0o700)",
    "fchmod, read-only": "os.fchmod(os.open('old', os.O_RDONLY), 0o777)",
    "times": "os.utime('old', (1, 1))",
    "times by descriptor": "os.utime(os.open('old', os.O_RDONLY), (1, 1))",
    "through a symbolic link": "open('link', 'w').write('new')",
    "another symbolic link": "os.unlink('link'); os.symlink('folder', 'link')",
    "through a new hard link": "os.link('old', 'name'); open('name', 'w').write('new')",
    "out of a folder it makes": "os.makedirs('a/b'); os.chdir('a/b'); open('../../old', 'w').write('new')",
    "sqlite": "c = sqlite3.connect('db'); c.execute('insert into t values (2)'); c.commit()",
    "zip": "zipfile.ZipFile('old', 'w').writestr('a', 'b')",
    "gzip": "gzip.open('old', 'wb').write(b'new')",
    "a log": "logging.basicConfig(filename='old'); logging.error('new')",
    "rotating logs": "logging.handlers.RotatingFileHandler('old', maxBytes=1, backupCount=1).doRollover()",
    "C's fopen": (
        "l = ctypes.CDLL(None); p = ctypes.c_void_p; l.fopen.restype = p; l.fclose(p(l.fopen(b'old', b'w')))"
    ),
    "C's rename": "open('t', 'w').close(); ctypes.CDLL(None).rename(b't', b'old')",
    "a forked worker": (
        "p = multiprocessing.get_context('fork').Process(target=os.truncate, args=('old', 0)); p.start(); p.join()"
    ),
    "a spawned worker": (
        "p = multiprocessing.get_context('spawn').Process(target=os.truncate, args=('old', 0)); p.start(); p.join()"
    ),
    "a thread": "t = threading.Thread(target=os.truncate, args=('old', 0)); t.start(); t.join()",
    "an orphan": "os.fork() or (os.setsid(), os.fork() or os.truncate('old', 0), os._exit(0)); time.sleep(0.2)",
    "by the working folder in /proc": "open('/proc/self/cwd/old', 'w').write('new')",
    "by the root folder in /proc": "open('/proc/self/root' + os.path.abspath('old'), 'w').write('new')",
    "by a folder's descriptor in /proc": "f = os.open('.', os.O_RDONLY); open(f'/proc/self/fd/{f}/old', 'w')",
    "a read-only descriptor opened again": "f = os.open('old', 0); open(f'/dev/fd/{f}', 'w').write('new')",
    "the same by a thread": (
        "f = os.open('old', os.O_RDONLY); "
        "t = threading.Thread(target=os.truncate, args=(f'/proc/thread-self/fd/{f}', 0)); t.start(); t.join()"
    ),
    "chmod by a path descriptor": "f = os.open('old', os.O_PATH); os.chmod(f'/proc/self/fd/{f}', 0o777)",
    "by its process id": "open(f'/proc/{os.getpid()}/cwd/old', 'w').write('new')",
    "an isolated Python": "subprocess.run([sys.executable, '-I', '-c', \"open('old', 'w')\"])",
}
SHELL = {
    "redirection": "echo new > old",
    "a read-only descriptor": "exec 3<old; echo new >/dev/fd/3",
    "standard input": "exec <old; echo new >/dev/stdin",
    "empty environment": "env -i /bin/sh -c ': > old'",
    "cp": "echo > t; cp t old",
    "mv": "echo > t; mv -f t old",
    "rm": "rm -rf folder old",
    "sed": "sed -i s/o/n/ old",
    "dd": "dd if=/dev/zero of=old bs=1 count=2 conv=notrunc 2>/dev/null",
    "tee": "echo new | tee old >/dev/null",
    "touch": "touch old",
    "ln": "ln -sf folder old",
    "install": "install -m 600 /bin/true old",
    "tar": "mkdir t; echo new > t/old; tar -C t -cf - . | tar -xf -",
}
HEAD = (
    "import ctypes, gzip, logging, logging.handlers, mmap, multiprocessing, os, shutil, sqlite3, subprocess, sys, "
    "threading, time, zipfile\n"
)
TRACE = """
    import os, sys
    from gpumemnet.tracing.script.shield import shields
    from gpumemnet.tracing.script.start import run
    print(run(sys.argv[2:], environment=os.environ, ways=(getattr(shields, sys.argv[1]),)).why)
"""
ALL = {
    **{
        name: [sys.executable, "-c", f"{HEAD}if __name__ == '__main__':\n    {code}"]
        for name, code in PYTHON.items()
    },
    **{name: ["/bin/sh", "-c", code] for name, code in SHELL.items()},
}


def tree(folder: Path) -> None:
    """Make what each program finds: files, folders, links, a database; all of last year."""
    (folder / "folder" / "deep").mkdir(parents=True)
    for name in ("old", "folder/inside", "folder/deep/inside"):
        (folder / name).write_text(f"of last year: {name}")
    (folder / "folder").chmod(0o755)
    (folder / "link").symlink_to("old")
    subprocess.run(
        [
            sys.executable,
            "-c",
            "import sqlite3; c = sqlite3.connect('db'); c.execute('create table t (x)'); c.commit()",
        ],
        cwd=folder,
        check=True,
    )
    for path in sorted(folder.rglob("*"), reverse=True):
        os.utime(path, (1e9, 1e9), follow_symlinks=False)


def seen(folder: Path) -> dict[str, tuple[object, ...]]:
    """Return of each file all that can be seen of it: kind, mode, owner, time, content or target."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        is_link, about = path.is_symlink(), path.lstat()
        content_hash = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() and not is_link else ""
        times = () if path.is_dir() and not is_link else (about.st_mtime_ns,)
        owner = (about.st_mode, about.st_uid, about.st_gid, *times)
        found[str(path.relative_to(folder))] = (*owner, content_hash, os.readlink(path) if is_link else "")
    return found


def trees(top: Path, user: int) -> list[Path]:
    folders = []
    for number in range(len(ALL)):
        folders.append(top / f"{number:02}")
        tree(folders[-1])
    for path in (top, *top.rglob("*")):
        os.chown(path, user, -1, follow_symlinks=False)
    return folders


def script(folders: list[Path]) -> list[str]:
    """Return a command that runs each program in a folder of its own, whatever becomes of the others."""
    work = [(str(folder), command) for folder, command in zip(folders, ALL.values(), strict=True)]
    code = f"import subprocess\nfor folder, words in {work!r}: subprocess.run(words, cwd=folder)\nprint('all of them')"
    return [sys.executable, "-c", code]


def readable(user: int) -> bool:
    words = [sys.executable, "-c", "import gpumemnet.tracing.script.start"]
    return not subprocess.run(words, cwd=ROOT, user=user, capture_output=True, check=False).returncode


@pytest.fixture
def top() -> object:
    folder = Path("/tmp") / f"rad-writes-{os.getpid()}"  # an ordinary user reaches no folder of root's pytest
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


USERS = [os.geteuid()] if os.geteuid() else [0, NOBODY]


def test_each_program_really_writes(top: Path) -> None:
    folders = trees(top, os.geteuid())
    before = [seen(folder) for folder in folders]
    subprocess.run(script(folders), check=True, capture_output=True, timeout=300)
    same = [name for name, folder, was in zip(ALL, folders, before, strict=True) if seen(folder) == was]
    assert same == []
    assert len(ALL) >= 40


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("way", SHIELDS, ids=lambda way: way.__name__)
def test_none_changes_what_was_there(top: Path, way: type, user: int) -> None:
    if not readable(user):
        pytest.skip("an ordinary user cannot read this checkout")
    folders = trees(top, user)
    before = [seen(folder) for folder in folders]
    command = [sys.executable, "-c", textwrap.dedent(TRACE), way.__name__, *script(folders)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(top)}
    done = subprocess.run(
        command,
        cwd=top,
        env=environment,
        user=user,
        group=user,
        extra_groups=[],
        text=True,
        capture_output=True,
        timeout=300,
    )
    if way is Copies and ("user namespace" in done.stderr or "mount" in done.stderr):
        pytest.skip(f"no namespaces here: {done.stderr.splitlines()[-1]}")
    assert "its last words: all of them" in done.stdout, done.stderr
    for name, folder, was in zip(ALL, folders, before, strict=True):
        now = seen(folder)
        assert {path: now.get(path) for path in was} == was, name
        assert way is Refusing or now == was, name  # where copies are written, nothing new stays either
    assert ("was to be changed" in done.stdout) == (way is Refusing)


MANY_MOUNTS = """
import ctypes, os, sys
from pathlib import Path
from gpumemnet.tracing.script.shield import apart
libc = ctypes.CDLL(None)
libc.unshare(0x20000)
libc.mount(None, b"/", None, 1 << 18 | 16384, None)
homes = [Path(sys.argv[1], f"{number:03}") for number in range(300)]
for home in homes:
    home.mkdir()
    assert libc.mount(b"none", bytes(home), b"tmpfs", 0, None) == 0
project = homes[int(sys.argv[2])] / "project"
project.mkdir()
(project / "old").write_text("old")
os.chdir(project)
if os.fork() == 0:
    apart.enter(sys.argv[3], str(homes[7]))
    Path("old").write_text("new")
    os._exit(0)
print(os.wait()[1], Path("old").read_text())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize("number", [0, 150, 299])
def test_the_working_folder_is_copied_on_a_machine_with_many_mounts(top: Path, number: int) -> None:
    """More home folders, each mounted, than overlays are made."""
    for name in ("homes", "scratch"):
        (top / name).mkdir()
    words = [sys.executable, "-c", MANY_MOUNTS, top / "homes", str(number), top / "scratch"]
    done = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300
    )
    assert (done.stdout, done.stderr) == ("0 old\n", "")


LATER = """
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
value = ctypes.create_string_buffer(b"new")
given = ctypes.create_string_buffer(struct.pack("QII", ctypes.addressof(value), 3, 0), 16)
libc.syscall(463, -100, b"old", 0, b"user.of-trace", given, 16)
print("errno", ctypes.get_errno())
"""


def test_a_call_of_a_later_kernel_marks_no_file(top: Path) -> None:
    """setxattrat came with Linux 6.13; an earlier one has no such call."""
    tree(top)
    outcome = traced(top, Refusing, LATER)
    assert f"its last words: errno {errno.ENOSYS}" in outcome
    assert os.listxattr(top / "old") == []


STREAMS = """
import os, subprocess
for path in ("/dev/stdout", "/dev/stderr", "/proc/self/fd/1", "/dev/null", "/proc/self/comm", "/proc/thread-self/comm"):
    with open(path, "w") as file:
        file.write("of-trace")
pipe, end = os.pipe()
with open(f"/dev/fd/{end}", "w") as file:
    file.write("of-trace")
shell = "echo x > /dev/stderr; cat < /dev/stdin; (echo y > /proc/self/fd/2) && echo all of it"
subprocess.run(shell, shell=True, check=True, stdin=subprocess.DEVNULL)
"""


@pytest.mark.parametrize("way", SHIELDS, ids=lambda way: way.__name__)
def test_streams_and_what_a_process_says_of_itself_are_written(top: Path, way: type) -> None:
    """They are no files that a user could lose."""
    assert "its last words: all of it" in traced(top, way, STREAMS)


SHARED = """
import ctypes
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
there = libc.shmget({key}, 0, 0)
if there >= 0:
    ctypes.memset(libc.shmat(there, None, 0), 65, 3)
    libc.shmctl(there, 0, None)
libc.shmget({key} + 1, 4096, 0o1600)
ctypes.CDLL("librt.so.1").mq_unlink(b"/rad-of-trace-{key}")
print("tried")
"""


@pytest.mark.parametrize("way", SHIELDS, ids=lambda way: way.__name__)
def test_memory_and_queues_that_programs_share_stay(top: Path, way: type) -> None:
    libc, librt = ctypes.CDLL(None), ctypes.CDLL("librt.so.1")
    libc.shmat.restype = ctypes.c_void_p
    key, create = 0x52000000 + 2 * os.getpid(), os.O_CREAT | 0o600
    queue = f"/rad-of-trace-{key}".encode()
    memory = libc.shmget(key, 4096, 0o1600)
    shared = libc.shmat(memory, None, 0)
    assert memory >= 0
    assert librt.mq_open(queue, create, 0o600, None) >= 0
    try:
        traced(top, way, SHARED.format(key=key))
        assert ctypes.string_at(shared, 3) == bytes(3)
        assert libc.shmget(key, 0, 0) == memory
        assert libc.shmget(key + 1, 0, 0) < 0
        assert librt.mq_open(queue, 0) >= 0
    finally:
        libc.shmctl(memory, 0, None)
        libc.shmctl(libc.shmget(key + 1, 0, 0), 0, None)
        librt.mq_unlink(queue)


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has no such way")
@pytest.mark.parametrize(
    "code",
    [
        "open('/proc/{outside}/root' + os.path.abspath('old'), 'w').write('new')",
        "open('/proc/%d/cwd/old' % os.getppid(), 'w').write('new')",
        "subprocess.run(['nsenter', '-t', '{outside}', '-m', 'truncate', '-s0', os.path.abspath('old')])",
    ],
    ids=["root of another process", "folder of another process", "nsenter"],
)
def test_root_leaves_the_copies_by_no_way(top: Path, code: str) -> None:
    """A user is root in many a container."""
    tree(top)
    outcome = traced(top, Copies, f"import os, subprocess\n{code.format(outside=os.getpid())}")
    if "mount namespace" in outcome:
        pytest.skip("no namespaces here")
    assert (top / "old").read_text() == "of last year: old"


def traced(folder: Path, way: type, code: str) -> str:
    """Trace a program by one way of protection, and return the outcome."""
    command = [sys.executable, "-c", textwrap.dedent(TRACE), way.__name__, sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    return done.stdout or done.stderr.splitlines()[-1]
