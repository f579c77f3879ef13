"""What users do to their processes so that they count as another job's, as no job's, or as Slurm's own.

All jobs share one GPU; `games` has an honest job, the user `nobody` attacks. A row for each goes to RAD_FAULTS_OUT.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.site import trial_cluster
from faults.test_hostile import NEIGHBOUR, USER, jobs, submit  # noqa: F401 # a fixture

from lab.cluster import Cluster
from lab.jobs import Jobs
from lab.place import NodeSpec
from slurm_plugin.core.process.identity import Process, opened, owner_of
from slurm_plugin.slurm.node.cgroups import hierarchies
from slurm_plugin.slurm.node.daemons import Belonging
from slurm_plugin.slurm.node.processes import living_jobs, owners_of, processes_of

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

HOLDER = Path(__file__).resolve().parent / "programs" / "holder.py"
NOBODY = pwd.getpwnam(USER).pw_uid
SUBORDINATE = 100_000
NODE = NodeSpec(name="n0", gpu_mib=(40960,))
SAMPLES = 5
"""Of the monitor; two that agree are enough for its guard."""

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield from trial_cluster("processes", NODE)


@pytest.fixture
def programs() -> Iterator[contextlib.ExitStack]:
    """Ends what an attempt has started, whatever became of it."""
    with contextlib.ExitStack() as started:
        yield started


@pytest.fixture
def attack(jobs: Jobs, programs: contextlib.ExitStack) -> Attack:  # noqa: F811
    jobs.cluster.wait("earlier jobs hold nothing", lambda: not jobs.cluster.allocations("n0"), 90)
    return Attack(jobs, programs)


class Attack:
    """An honest job of the neighbour's, and what is tried next to it."""

    def __init__(self, jobs: Jobs, programs: contextlib.ExitStack) -> None:  # noqa: F811
        self.jobs, self.cluster, self._programs = jobs, jobs.cluster, programs
        self.gpus = self.cluster.place.gpus("n0")
        self.gpu = json.loads((self.gpus / "gpus.json").read_text())[0]["uuid"]
        # `-P`, so that the folder of the holder is not searched for modules; jobs find the venv's python in PATH.
        self._python = str(self.cluster.place.venv / "bin" / "python")

    def honest(self, *, user: str = NEIGHBOUR) -> int:
        """Start a job that keeps to its booking, and return its id."""
        wrap = "python3 fake_train.py --memory 8G --seconds 80"
        job = submit(self.jobs, "--open-mode=append", rad="memory=10G", wrap=wrap, user=user)
        self.jobs.wait(job, "RUNNING")
        return job

    def holder(self, gib: int, *how: str) -> tuple[list[str], Path]:
        """Return the command that holds memory of the GPU, and the file that it writes then."""
        ready = self.jobs.folder / f"ready{next(_NUMBERS)}"
        return [self._python, str(HOLDER), str(self.gpus), self.gpu, str(gib), str(ready), *how], ready

    def holds(self, ready: Path) -> int:
        """Wait until a holder holds, and return its pid; it ends with the test."""
        self.cluster.wait("memory is used", lambda: ready.exists() and bool(ready.read_text()), 30)
        pid = int(ready.read_text())
        process = Process.running(pid)
        assert process is not None
        self._programs.callback(process.kill)
        return pid

    def login(self, argv: list[str], *, user: str = USER, env: dict[str, str] | None = None) -> None:
        """Run a command as from a login: of no job."""
        words = [f"{name}={value}" for name, value in (env or {}).items()]
        command = ["runuser", "-u", user, "--", "env", *words, *argv]
        running = subprocess.Popen(
            command, cwd=self.jobs.folder, env=self.cluster.env(), stdin=subprocess.PIPE
        )
        self._programs.callback(running.wait)
        self._programs.callback(running.kill)

    def job(self, argv: list[str], *, rad: str = "memory=4G", env: str = "", before: str = "") -> int:
        """Run a command in a job of the attacker's, and return its id."""
        once = '[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || exit 0'  # an orphan of a rerun would outlive the test
        wrap = f"{once}; {before} {env} {' '.join(argv)}; sleep 60"
        return submit(self.jobs, "--open-mode=append", rad=rad, wrap=wrap)

    def sampled(self, samples: int = SAMPLES) -> None:
        """Wait until the monitor has looked so often."""
        until_s = self.cluster.clock.now_s() + samples
        self.cluster.wait("samples", lambda: self._last_sample_s() > until_s, 30)

    def _last_sample_s(self) -> float:
        window = self.cluster.place.run / "n0" / "monitor" / "window.json"
        return float(json.loads(window.read_text())["time_s"]) if window.exists() else 0.0

    def untouched(self, job: int) -> None:
        """See that a job runs on, and that nothing was said against it."""
        fields = self.jobs.fields(job)
        assert (fields["JobState"], fields["Restarts"]) == ("RUNNING", "0"), fields
        assert not [row for row in self.events() if row["job"] == job and row["event"] == "overrun"]

    def events(self) -> list[dict[str, object]]:
        path = self.cluster.place.log / "events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def is_stopped(self, job: int) -> bool:
        return self.jobs.state(job) != "RUNNING" or self.jobs.restarts(job) > 0


def setuid_title(title: str, argv: list[str]) -> str:
    """Return the shell words that run a command below a setuid-root program under slurmstepd's name.

    newgrp starts what it is given and waits; where a Debian has none, a parent of root's that is not Slurm's stands in.
    """
    group = subprocess.run(["id", "-gn", USER], capture_output=True, text=True, check=True).stdout.strip()
    return (
        f"d=$(mktemp -d); cd $d; ln -s {shutil.which('newgrp')} slurmstepd; "
        f'bash -c \'exec -a "{title}" ./slurmstepd {group} -c "{" ".join(argv)}"\''
    )


def namespaces_of_users() -> bool:
    """Return whether users may make user namespaces here; no kernel lets them in a chroot."""
    return (
        subprocess.run(["runuser", "-u", USER, "--", "unshare", "--user", "true"], check=False).returncode
        == 0
    )


# --- a slurmstepd that is none ------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["job", "login"])
def test_a_setuid_program_that_calls_itself_the_neighbours_slurmstepd(attack: Attack, where: str) -> None:
    tried = subprocess.run(["runuser", "-u", USER, "--", "sh", "-c", "newgrp $(id -gn) -c true"], check=False)
    if tried.returncode != 0:  # that of util-linux starts the user's own shell, which may be nologin
        pytest.skip("this Debian has no newgrp that starts anything for such a user")
    victim = attack.honest()
    argv, ready = attack.holder(20)
    script = attack.jobs.folder / "forge.sh"
    script.write_text(setuid_title(f"slurmstepd: [{victim}.batch]", argv) + "\n")
    if where == "job":
        attack.job(["bash", str(script)])
    else:
        attack.login(["bash", str(script)])
    pid = attack.holds(ready)
    attack.sampled()
    assert owners_of([pid]).get(pid, Belonging(job_id=0, certain=False)).job_id != victim
    attack.untouched(victim)


def test_a_root_process_of_another_program_under_slurmstepds_name(attack: Attack) -> None:
    """passwd and chfn become root altogether before they write; their child holds the memory."""
    victim = attack.honest()
    argv, ready = attack.holder(20)
    link = attack.jobs.folder / "slurmstepd"
    link.symlink_to("/bin/sh")
    command = ["setpriv", f"--reuid={USER}", "--clear-groups", *argv]
    parent = subprocess.Popen(
        [f"slurmstepd: [{victim}.batch]", "-c", '"$@"; :', "sh", *command],
        executable=link,
        env=attack.cluster.env(),
    )
    try:
        pid = attack.holds(ready)
        attack.sampled()
        assert owners_of([pid]) == {}
        attack.untouched(victim)
    finally:
        parent.kill()
        parent.wait()


@pytest.mark.parametrize("program", ["su", "passwd", "chfn", "chsh", "gpasswd", "newgrp", "mount", "umount"])
def test_no_setuid_program_of_this_debian_keeps_a_job_alive(attack: Attack, program: str) -> None:
    """Its title would keep the allocation of a job that is gone, and a lost job from being run again."""
    path = shutil.which(program)
    if path is None:
        pytest.skip("not here")
    gone = 987_000
    link = attack.jobs.folder / "slurmstepd"
    link.symlink_to(path)
    group = subprocess.run(["id", "-gn", USER], capture_output=True, text=True, check=True).stdout.strip()
    words = {"newgrp": [group, "-c", "sleep 5"], "su": ["root"]}.get(program, [])
    attack.login(["bash", "-c", f'exec -a "slurmstepd: [{gone}.batch]" {link} "$@"', "x", *words])
    assert not any(gone in living_jobs() for _ in range(20))


def test_a_container_whose_root_is_the_user(attack: Attack) -> None:
    """A namespace of his own in which a program of his lies in slurmstepd's place, and he is root."""
    if not namespaces_of_users():
        pytest.skip("no user namespaces here")
    victim = attack.honest()
    argv, ready = attack.holder(20)
    real = os.path.realpath(shutil.which("slurmstepd", path="/usr/sbin:/sbin") or "/usr/sbin/slurmstepd")
    script = attack.jobs.folder / "container.sh"
    script.write_text(
        f"cp /bin/sh mine && mount --bind mine {real} && "
        f'exec bash -c \'exec -a "slurmstepd: [{victim}.batch]" {real} -c "{" ".join(argv)}; :"\'\n'
    )
    attack.login(
        ["unshare", "--user", "--map-root-user", "--mount", "--propagation", "unchanged", "sh", str(script)]
    )
    pid = attack.holds(ready)
    with opened(pid) as entry:
        assert entry is not None and entry.owner == NOBODY
        parent = entry.parent
    assert b"slurmstepd: [" in Path(f"/proc/{parent}/cmdline").read_bytes()
    attack.sampled()
    assert owners_of([pid]) == {}
    attack.untouched(victim)


def test_a_program_of_his_own_with_slurmstepds_name_and_title(attack: Attack) -> None:
    victim = attack.honest()
    argv, ready = attack.holder(20)
    script = attack.jobs.folder / "own.sh"
    own = f'exec -a "slurmstepd: [{victim}.batch]" ./slurmstepd -c "{" ".join(argv)}; :"'
    script.write_text(f"cp /bin/sh slurmstepd; bash -c '{own}'\n")
    overrunner = attack.job(["sh", str(script)], rad="memory=22G")
    pid = attack.holds(ready)
    attack.sampled()
    assert owners_of([pid]) == {pid: Belonging(job_id=overrunner, certain=True)}
    attack.untouched(victim)


# --- a word in the environment --------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["job", "login"])
def test_an_orphan_that_names_the_neighbours_job(attack: Attack, where: str) -> None:
    victim = attack.honest()
    argv, ready = attack.holder(20, "orphan")
    if where == "job":
        attack.job(argv, env=f"CLAIM={victim}")
    else:
        attack.login(argv, env={"CLAIM": str(victim)})
    pid = attack.holds(ready)
    attack.sampled()
    assert owners_of([pid]) == {pid: Belonging(job_id=victim, certain=False)}
    attack.untouched(victim)


def test_a_job_that_names_another_of_the_same_user(attack: Attack) -> None:
    """Of one owner, but no reason to stop the other job."""
    honest = attack.honest(user=USER)
    argv, ready = attack.holder(20, "orphan")
    attack.job(argv, env=f"CLAIM={honest}")
    attack.holds(ready)
    attack.sampled()
    attack.untouched(honest)


def test_no_victim_of_a_forged_culprit(attack: Attack) -> None:
    """The attacker's own job runs out of memory next to memory that is to count as the honest job's."""
    honest = attack.honest()
    argv, ready = attack.holder(29, "orphan")
    words = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB."
    attack.login(argv, env={"CLAIM": str(honest)})
    attack.holds(ready)
    mine = submit(attack.jobs, "--open-mode=append", wrap=f"sleep 4; echo '{words}'; exit 1")
    attack.cluster.wait(
        "it has ended",
        lambda: attack.jobs.restarts(mine) > 0 or attack.jobs.state(mine) in ("FAILED", "COMPLETED"),
        40,
    )
    attack.sampled(2)
    assert "victim" not in {row["event"] for row in attack.events() if row["job"] == mine}
    attack.untouched(honest)


# --- a cgroup of his own --------------------------------------------------------------------------------------------


@pytest.fixture
def delegated() -> Iterator[Path]:
    """A cgroup that was given to the user, as systemd gives user@UID.service."""
    mounted = next((one.folder for one in hierarchies() if not one.controllers), None)
    if mounted is None:
        pytest.skip("no cgroup v2 here")
    folder = mounted / f"user@{NOBODY}.service-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as exc:
        pytest.skip(f"no cgroup can be made here: {exc}")
    for name in ("", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"):
        os.chown(folder / name, NOBODY, NOBODY)
    yield folder
    for inner in sorted(folder.rglob("*/"), reverse=True):
        if inner.is_dir():
            inner.rmdir()
    folder.rmdir()


@pytest.mark.parametrize("shape", ["job_{}", "slurmstepd.scope/job_{}", "slurm/uid_0/job_{}"])
def test_a_cgroup_with_the_name_of_the_neighbours(attack: Attack, delegated: Path, shape: str) -> None:
    victim = attack.honest()
    own = delegated / shape.format(victim)
    argv, ready = attack.holder(20)
    move = f'mkdir -p {own} && echo 0 > {own}/cgroup.procs && exec "$@"'
    enter = f'echo $$ > {delegated}/cgroup.procs; exec runuser -u {USER} -- "$@"'
    command = ["sh", "-c", enter, "x", "sh", "-c", move, "x", *argv]
    running = subprocess.Popen(command, env=attack.cluster.env(), stdin=subprocess.DEVNULL)
    try:
        pid = attack.holds(ready)
        assert f"/job_{victim}" in Path(f"/proc/{pid}/cgroup").read_text()
        attack.sampled()
        assert owners_of([pid]) == {}
        attack.untouched(victim)
    finally:
        for one in (int(ready.read_text() or 0) if ready.exists() else 0, running.pid):
            if one:
                os.kill(one, 9)
        running.wait()
        attack.cluster.wait(
            "its cgroup is empty", lambda: not own.exists() or not (own / "cgroup.procs").read_text(), 10
        )


# --- hiding from the guard ------------------------------------------------------------------------------------------


def test_an_overrunning_job_that_may_not_be_looked_at(attack: Attack) -> None:
    """A parent that may not be looked at starts the holder again, as often as that is ended."""
    argv, ready = attack.holder(30, "again")
    overrunner = attack.job(argv)
    attack.holds(ready)
    attack.honest()
    attack.cluster.wait("the overrunning job is stopped", lambda: attack.is_stopped(overrunner), 30)


def test_an_overrunning_job_with_another_user_id_of_his_own_namespace(attack: Attack) -> None:
    if not namespaces_of_users():
        pytest.skip("no user namespaces here")
    argv, ready = attack.holder(30, "mapped")
    overrunner = attack.job(argv)
    pid_file = ready.with_suffix(".map")
    attack.cluster.wait("it wants a map", lambda: pid_file.exists() and bool(pid_file.read_text()), 30)
    pid = int(pid_file.read_text())
    Path(f"/proc/{pid}/uid_map").write_text(f"0 {NOBODY} 1\n1 {SUBORDINATE} 1000\n")
    assert attack.holds(ready) == pid
    with opened(pid) as entry:
        assert entry is not None and (entry.user_ids[0], entry.owner) == (SUBORDINATE, NOBODY)
    attack.cluster.wait("the overrunning job is stopped", lambda: attack.is_stopped(overrunner), 30)


def test_an_overrunning_job_that_is_orphaned_in_its_session(attack: Attack) -> None:
    argv, ready = attack.holder(30)
    overrunner = attack.job([f"(env -i {' '.join(argv)} &)"])
    pid = attack.holds(ready)
    assert attack.is_stopped(overrunner) or owners_of([pid]) in (
        {pid: Belonging(job_id=overrunner, certain=True)},
        {},
    )
    attack.cluster.wait("the overrunning job is stopped", lambda: attack.is_stopped(overrunner), 30)


def test_the_owner_of_an_unmanaged_process_cannot_be_hidden(attack: Attack) -> None:
    """Next to a job with the whole GPU, whose owner would be its victim, and not his own, were it taken for root's."""
    whole = submit(attack.jobs, rad="policy=exclusive", wrap="sleep 60")
    attack.jobs.wait(whole, "RUNNING")
    argv, ready = attack.holder(10, "hidden")
    attack.login(argv)
    pid = attack.holds(ready)
    assert owner_of(pid) == NOBODY

    def named() -> list[object]:
        return [
            row.get("user_id")
            for row in attack.events()
            if row["event"] == "unmanaged" and str(pid) in str(row["detail"])
        ]

    attack.cluster.wait("it is named", lambda: bool(named()), 20)
    assert set(named()) == {NOBODY}


# --- what is Slurm's ------------------------------------------------------------------------------------------------


def test_a_real_slurmstepd_is_known_whatever_becomes_of_slurmd(attack: Attack) -> None:
    honest = attack.honest()

    def known() -> bool:
        own = [one.pid for one in processes_of(honest, pwd.getpwnam(NEIGHBOUR).pw_uid)]
        found = owners_of(own)
        return (
            honest in living_jobs()
            and bool(own)
            and set(found.values()) == {Belonging(job_id=honest, certain=True)}
        )

    attack.cluster.wait("its processes are known", known, 10)
    attack.cluster.daemons.kill("slurmd-n0")
    assert known()
    attack.cluster.start_node(NODE)
    attack.cluster.wait("slurmd is back", lambda: attack.cluster.daemons.pid("slurmd-n0") is not None, 20)
    assert known()


@pytest.mark.skipif(not Path("/proc/sys/kernel/ns_last_pid").exists(), reason="pids cannot be chosen here")
def test_a_pid_that_is_anothers_by_the_next_look() -> None:
    """The kernel gives a pid again between two reads: nothing of the new process is taken for the old one's."""
    script = (
        "import os, subprocess, sys\n"
        "from pathlib import Path\n"
        "from slurm_plugin.core.process.identity import opened\n"
        "def started(name):\n"
        "    process = subprocess.Popen([name, '30'], executable='/bin/sleep')\n"
        "    while not Path(f'/proc/{process.pid}/cmdline').read_bytes(): pass\n"  # it has just become a program
        "    return process\n"
        "first = started('first')\n"
        "with opened(first.pid) as entry:\n"
        "    assert entry.read('cmdline').startswith(b'first'), entry.read('cmdline')\n"
        "    first.kill(); first.wait()\n"
        "    for _ in range(50):\n"
        "        Path('/proc/sys/kernel/ns_last_pid').write_text(str(first.pid - 1))\n"
        "        second = started('second')\n"
        "        if second.pid == first.pid: break\n"
        "        second.kill(); second.wait()\n"
        "    assert second.pid == first.pid\n"
        "    assert Path(f'/proc/{second.pid}/cmdline').read_bytes().startswith(b'second')\n"
        "    assert (entry.read('cmdline'), entry.user_ids, entry.executable()) == (b'', (), None)\n"
        "    second.kill()\n"
    )
    command = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--propagation",
        "unchanged",
        sys.executable,
        "-I",
        "-c",
        script,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
