"""What an ordinary user tries against neighbours, priority, root and RAD; each attempt must be in vain.

Each runs as the user `nobody` on a real cluster; `games` is the neighbour. A row for each goes to RAD_FAULTS_OUT.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from faults.site import RUN, jobs_of, out_path, slurm_version, trial_cluster

from lab.cluster import Cluster
from lab.config import SHARD_MIB, shards_of
from lab.jobs import Jobs
from slurm_plugin.core.booking.gres_text import count_of, parse_gres
from slurm_plugin.core.records.submission import GresItem
from slurm_plugin.core.units import from_mib
from slurm_plugin.slurm.commands import SlurmCommands

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

USER, NEIGHBOUR = "nobody", "games"
WHOLE = shards_of(40960)
WORDS = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield from trial_cluster("hostile")


@pytest.fixture
def jobs(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    """A folder of the test's own; how the attempt ended is written down."""
    failed = request.session.testsfailed
    yield jobs_of(cluster)
    cluster.cancel_jobs()
    won = request.session.testsfailed > failed
    row = {
        "attempt": " ".join(request.node.originalname.split("_")[1:]),
        "won": won,
        "slurm": slurm_version(),
        "run": RUN,
    }
    if request.node.originalname != "test_the_node_is_whole_after_all_of_this":
        with out_path().open("a") as file:
            file.write(json.dumps(row) + "\n")


def submit(jobs: Jobs, *argv: str, user: str = USER, rad: str = "memory=4G", wrap: str = "sleep 30") -> int:
    return jobs.accepted("--gpus=1", f"--comment=rad:{rad}", "--mem=50", *argv, "--wrap", wrap, user=user)


def as_user(*argv: str, cluster: Cluster, user: str = USER) -> bool:
    """Run a command as a user and return whether it succeeded."""
    command = ["runuser", "-u", user, "--", *argv]
    done = subprocess.run(command, env=cluster.env(), capture_output=True, timeout=30, check=False)
    return done.returncode == 0


def allocation_of(cluster: Cluster, job: int) -> dict[str, Any]:
    return next((row for row in cluster.allocations("n0") if row["job_id"] == job), {})


def is_rewritten(jobs: Jobs, user: str) -> bool:
    job = submit(jobs, "-H", user=user)
    found = "shard" in jobs.fields(job).get("TresPerNode", "")
    jobs.cluster.slurm("scancel", str(job))
    return found


def given(fields: dict[str, str]) -> tuple[GresItem, ...]:
    """Return what Slurm gave a job of GPUs; it shows `shard:0(IDX:)` where that is nothing."""
    items = parse_gres(re.sub(r"\([^)]*\)", "", fields.get("GRES", "")))
    return tuple(item for item in items if item.count)


def shards_given(fields: dict[str, str]) -> int:
    """Return how many shards Slurm gave a running job, by its allocation and not by what it shows as requested."""
    given = fields.get("GRES", "")
    return sum(
        int(part.rpartition("shard:")[2].partition("(")[0]) for part in given.split(",") if "shard:" in part
    )


# --- priority -----------------------------------------------------------------------------------------------------


def test_words_printed_next_to_a_tiny_request_buy_no_priority(jobs: Jobs) -> None:
    wrap = f"python3 fake_train.py --memory 900M --seconds 2; echo '{WORDS}' >&2; exit 1"
    job = submit(jobs, "--open-mode=append", rad="memory=1M", wrap=wrap)
    jobs.cluster.wait("it has ended once", lambda: ended_once(jobs, job), 40)
    usual = int(jobs.fields(submit(jobs, "-H", user=NEIGHBOUR)).get("Priority", "0"))
    jobs.cluster.clock.sleep(3)
    mine = int(jobs.fields(job).get("Priority", "0"))
    assert mine <= max(usual, 4294901760), f"{mine} against {usual}"


def ended_once(jobs: Jobs, job: int) -> bool:
    fields = jobs.fields(job)
    return fields.get("JobState") == "FAILED" or fields.get("Restarts") not in (None, "0")


def test_a_raised_priority_is_not_kept_for_later_requeues(jobs: Jobs) -> None:
    wrap = "python3 fake_train.py --memory 3.8G,30G --seconds 3; sleep 20"
    job = submit(jobs, "--open-mode=append", wrap=f"set -e; {wrap}")
    jobs.cluster.wait("it runs again", lambda: runs_again(jobs, job), 90)
    as_user("scontrol", "requeue", str(job), cluster=jobs.cluster)
    jobs.cluster.wait("it is back in the queue", lambda: jobs.state(job) == "PENDING", 30)
    mine = int(jobs.fields(job)["Priority"])
    assert mine < 4294950000, mine


def runs_again(jobs: Jobs, job: int) -> bool:
    fields = jobs.fields(job)
    return fields.get("JobState") == "RUNNING" and fields.get("Restarts") == "1"


# --- more than was requested --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        ("TresPerTask=gres:shard:1", "TresPerNode="),
        ("TresPerNode=gres:shard:1",),
        ("Gres=shard:1",),
        ("TresPerJob=gres:shard:1", "TresPerNode="),
        ("TresPerTask=gres/shard=1", "TresPerNode="),
        ("TresPerNode=",),
    ],
    ids=lambda changes: " ".join(changes),
)
def test_a_whole_gpu_for_one_shard(jobs: Jobs, changes: tuple[str, ...]) -> None:
    job = submit(jobs, "-H", "-n1", rad="memory=4G,policy=exclusive")
    for change in changes:
        as_user("scontrol", "update", f"JobId={job}", change, cluster=jobs.cluster)
    as_user("scontrol", "release", str(job), cluster=jobs.cluster)
    if not jobs.starts(job):
        return
    fields = jobs.fields(job)
    jobs.cluster.clock.sleep(1)
    row = allocation_of(jobs.cluster, job)
    if jobs.state(job) != "RUNNING":
        return  # requeued
    if not given(fields):
        return  # it was given no part of a GPU
    assert row, f"it runs on a booking for a whole GPU with nothing booked: {fields.get('GRES')}"
    holds_no_more_than_given(jobs, job)  # a version that requests gpu:1 was given that, and no shards


def test_a_signed_booking_of_an_earlier_larger_job(jobs: Jobs) -> None:
    large = submit(jobs, "-H", rad="memory=30G")
    signed_booking = jobs.fields(large)["Comment"]
    small = submit(jobs, "-H", rad="memory=1G")
    as_user("scontrol", "update", f"JobId={small}", f"Comment={signed_booking}", cluster=jobs.cluster)
    booked_beyond_request(jobs, small)


def test_a_signed_booking_of_another_user(jobs: Jobs) -> None:
    large = submit(jobs, "-H", rad="memory=30G", user=NEIGHBOUR)
    signed_booking = jobs.fields(large)["Comment"]
    small = submit(jobs, "-H", rad="memory=1G")
    as_user("scontrol", "update", f"JobId={small}", f"Comment={signed_booking}", cluster=jobs.cluster)
    booked_beyond_request(jobs, small)


def test_a_signed_booking_that_is_forged(jobs: Jobs) -> None:
    small = submit(jobs, "-H", rad="memory=1G")
    forged = "rad2:whole:gpus=1:try=0:retry=1:0123456789abcdef"
    as_user("scontrol", "update", f"JobId={small}", f"Comment={forged}", cluster=jobs.cluster)
    booked_beyond_request(jobs, small)


def booked_beyond_request(jobs: Jobs, job: int) -> None:
    """Let a held job go and see that it books no more than Slurm gives it, if it runs at all."""
    as_user("scontrol", "release", str(job), cluster=jobs.cluster)
    if not jobs.starts(job):
        return
    fields = jobs.fields(job)
    jobs.cluster.clock.sleep(1)
    row = allocation_of(jobs.cluster, job)
    booked_mib = int(str(row.get("booked_bytes", 0))) >> 20
    assert booked_mib <= max(1, shards_given(fields)) * 1024 or shards_given(fields) >= WHOLE, row


# --- other ways to submit and to change -----------------------------------------------------------------------------


def holds_no_more_than_given(jobs: Jobs, job: int) -> None:
    """See that a job that runs holds what Slurm gave it and no more; one that waits, or was requeued, holds nothing."""
    jobs.cluster.clock.sleep(1)
    fields = jobs.all_fields().get(job, {})  # of this task alone, where the job is an array
    running = fields.get("JobState") == "RUNNING"
    items = given(fields) if running else ()
    row = allocation_of(jobs.cluster, job)
    gpus, shards = count_of(items, "gpu"), count_of(items, "shard")
    if not row:
        assert not items, f"it runs on {items} with nothing booked"
    elif row["kind"] == "whole":
        assert shards >= WHOLE or gpus >= len(tuple(row["gpus"])), (items, row)
    else:
        assert row["booked_bytes"] <= shards * from_mib(SHARD_MIB), (items, row)


def signed_booking_of(jobs: Jobs, rad: str, *, user: str = USER) -> str:
    job = submit(jobs, "-H", rad=rad, user=user)
    return jobs.fields(job)["Comment"].split()[-1]


@pytest.mark.parametrize(
    "change", ["Gres=shard:1", "TresPerNode=gres:shard:1", "TresPerNode=gres/shard:1", "signed_booking"]
)
def test_one_task_of_an_array_is_changed(jobs: Jobs, change: str) -> None:
    rad = "memory=1G" if change == "signed_booking" else "memory=4G,policy=exclusive"
    words = f"Comment={signed_booking_of(jobs, 'memory=30G')}" if change == "signed_booking" else change
    array = submit(jobs, "-H", "--array=0-1", rad=rad, wrap="sleep 8")
    as_user("scontrol", "update", f"JobId={array}_1", words, cluster=jobs.cluster)
    as_user("scontrol", "release", str(array), cluster=jobs.cluster)
    tasks = [int(jobs.fields(f"{array}_{number}")["JobId"]) for number in (0, 1)]
    for task in tasks:
        if jobs.starts(task):
            holds_no_more_than_given(jobs, task)


def test_a_heterogeneous_job_with_a_signed_booking(jobs: Jobs) -> None:
    comment = f"--comment={signed_booking_of(jobs, 'policy=exclusive')}"
    one = ("--gres=shard:1", comment, "--mem=50")
    made = jobs.submit(*one, ":", *one, "--wrap", "sleep 8", user=USER)
    if made.job_id is None:
        return  # this Slurm takes none
    for job in (made.job_id, made.job_id + 1):
        if jobs.starts(job):
            holds_no_more_than_given(jobs, job)


@pytest.mark.parametrize(
    "export", ["NONE", "NIL", "ALL,SLURM_SHARDS_ON_NODE=39", "ALL,RAD_SHARDS=39,RAD_KIND=whole"]
)
def test_an_environment_of_ones_own(jobs: Jobs, export: str) -> None:
    """What a user exports, or keeps back, neither makes a booking larger nor lets a job past its booking."""
    job = submit(jobs, f"--export={export}", rad="memory=2G", wrap="sleep 5")
    jobs.wait(job, "RUNNING")
    holds_no_more_than_given(jobs, job)


@pytest.mark.parametrize("how", ["srun", "salloc"])
def test_an_interactive_job_with_a_signed_booking(jobs: Jobs, how: str) -> None:
    comment = f"--comment={signed_booking_of(jobs, 'policy=exclusive')}"
    name = f"mine-{how}"
    argv = [how, f"--job-name={name}", "--gres=shard:1", comment, "--mem=50", "sleep", "8"]
    command = ["runuser", "-u", USER, "--", *argv]
    running = subprocess.Popen(
        command, env=jobs.cluster.env(), stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        jobs.cluster.wait("it runs", lambda: bool(named(jobs, name)), 20)
        holds_no_more_than_given(jobs, named(jobs, name))
    finally:
        running.terminate()
        running.wait()


def named(jobs: Jobs, name: str) -> int:
    """Return the running job of a name; 0 if there is none."""
    found = jobs.cluster.slurm("squeue", "-h", "-t", "R", "-n", name, "-o", "%A").split()
    return int(found[0]) if found else 0


@pytest.mark.parametrize("gres", ["--gres=gpu:1", "--gres=shard:39", "--gpus=4", "--gres=none --overlap"])
def test_a_step_that_requests_more_than_its_job(jobs: Jobs, gres: str) -> None:
    step = f"timeout 8 srun -n1 {gres} sh -c 'echo step=$CUDA_VISIBLE_DEVICES' 2>/dev/null"
    look = f"{step}; echo job=$CUDA_VISIBLE_DEVICES"
    job = submit(jobs, rad="memory=4G", wrap=look)
    jobs.wait(job, timeout_s=40)
    lines = jobs.output(job).splitlines()
    (own,) = [line.partition("=")[2] for line in lines if line.startswith("job=")]
    steps = [line.partition("=")[2] for line in lines if line.startswith("step=")]
    assert own and all(step in ("", own) for step in steps), lines


@pytest.mark.parametrize(
    "change", ["Gres=shard:1", "TresPerNode=", "NumNodes=1-1 TresPerJob=gres/shard:1 TresPerNode="]
)
def test_a_running_job_is_requeued_with_another_request(jobs: Jobs, change: str) -> None:
    job = submit(jobs, rad="memory=4G,policy=exclusive", wrap="sleep 20")
    jobs.wait(job, "RUNNING")
    as_user("scontrol", "requeuehold", str(job), cluster=jobs.cluster)
    jobs.cluster.wait("it is back in the queue", lambda: jobs.state(job) == "PENDING", 20)
    as_user("scontrol", "update", f"JobId={job}", *change.split(), cluster=jobs.cluster)
    as_user("scontrol", "release", str(job), cluster=jobs.cluster)
    slurm = SlurmCommands(slurm_conf=str(jobs.cluster.place.slurm_conf), timeout_s=10)
    delay_s = slurm.requeue_delay_s()
    jobs.cluster.slurm("scontrol", "update", f"JobId={job}", f"StartTime=now+{delay_s}")
    if jobs.starts(job, within_s=delay_s + 15):
        holds_no_more_than_given(jobs, job)


# --- our state ----------------------------------------------------------------------------------------------------


def test_files_of_rads_that_a_user_may_write(jobs: Jobs) -> None:
    """While a job of the user runs, nothing below paths.run or paths.state is his, or open to him."""
    job = submit(jobs, wrap="sleep 20")
    jobs.wait(job, "RUNNING")
    jobs.cluster.clock.sleep(1)
    place = jobs.cluster.place
    find = "find -L {} -writable ! -type s ! -type l 2>/dev/null"
    folders = f"{place.run / 'n0'} {place.root / 'state'} {place.log} {place.etc}"
    command = ["runuser", "-u", USER, "--", "sh", "-c", find.format(folders)]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    assert not found


def test_a_deep_tree_where_root_cleans_up(jobs: Jobs) -> None:
    run = jobs.cluster.place.run / "n0"
    deep = (
        "import os, sys\n"
        f"os.chdir('{run}/jobs/' + os.environ['SLURM_JOB_ID'] + '/task')\n"
        "for _ in range(3000): os.mkdir('d'); os.chdir('d')\n"
    )
    (jobs.folder / "deep.py").write_text(deep)
    job = submit(jobs, wrap="python3 deep.py; true")
    jobs.wait(job, timeout_s=60)
    jobs.cluster.wait("it holds nothing any more", lambda: not allocation_of(jobs.cluster, job), 30)
    jobs.cluster.wait("its folder is gone", lambda: not (run / "jobs" / str(job)).exists(), 15)


def test_a_link_where_root_cleans_up(jobs: Jobs) -> None:
    run = jobs.cluster.place.run / "n0"
    victim = jobs.cluster.place.root / "victim"
    victim.mkdir(exist_ok=True)
    (victim / "names").write_text("precious")
    (victim / "file").write_text("precious")
    job = submit(
        jobs, wrap=f"cd {run}/jobs/$SLURM_JOB_ID && rm -rf task; ln -s {victim} task; ln -s {victim} x; true"
    )
    jobs.wait(job, timeout_s=60)
    jobs.cluster.wait("it holds nothing any more", lambda: not allocation_of(jobs.cluster, job), 30)
    assert sorted(path.name for path in victim.iterdir()) == ["file", "names"]


def test_a_place_of_rads_that_can_be_filled(jobs: Jobs) -> None:
    run = jobs.cluster.place.run / "n0"
    fill = (
        f"for f in {run} {run}/jobs {run}/jobs/$SLURM_JOB_ID {run}/jobs/$SLURM_JOB_ID/task /dev/null/x; do "
    )
    fill += 'head -c 3000000 /dev/zero >"$f/filler"; done; sleep 8'
    job = submit(jobs, wrap=fill)
    jobs.wait(job, "RUNNING")
    jobs.cluster.clock.sleep(3)
    assert not list(run.rglob("filler"))


def test_secrets_and_others_affairs_that_a_user_may_read(jobs: Jobs) -> None:
    job = submit(jobs, user=NEIGHBOUR, wrap="sleep 15")
    jobs.wait(job, "RUNNING")
    place = jobs.cluster.place
    secret = [place.etc / "key", place.run / "n0" / "ledger", *(place.root / "state").glob("*")]
    secret += [path for path in place.log.glob("*.log") if path.name.startswith(("prolog", "epilog"))]
    readable = [path.name for path in secret if as_user("head", "-c1", str(path), cluster=jobs.cluster)]
    assert not readable


def test_a_process_outside_any_job_in_a_rebuilt_ledger(jobs: Jobs) -> None:
    cluster = jobs.cluster
    uuid = json.loads((cluster.place.gpus("n0") / "gpus.json").read_text())[0]["uuid"]
    lie = {
        "SLURM_JOB_ID": "999999",
        "CUDA_VISIBLE_DEVICES": uuid,
        "RAD_GPUS": uuid,
        "RAD_KIND": "whole",
        "RAD_GPU_INDICES": "0",
    }
    words = [
        f"{name}={value}" for name, value in lie.items()
    ]  # of the user's process alone, not of runuser's
    command = ["runuser", "-u", USER, "--", "env", *words, "sleep", "60"]
    liar = subprocess.Popen(command, env=cluster.env(), start_new_session=True)
    try:
        (cluster.place.run / "n0" / "ledger").unlink(missing_ok=True)
        job = submit(jobs, wrap="sleep 8")
        jobs.wait(job, "RUNNING")
        cluster.clock.sleep(1)
        assert not allocation_of(cluster, 999999)
    finally:
        os.killpg(liar.pid, 9)
        liar.wait()


# --- radd ---------------------------------------------------------------------------------------------------------


def test_control_bytes_that_close_the_door_for_all(jobs: Jobs) -> None:
    script = jobs.folder / "bytes.sh"
    script.write_bytes(b"#!/bin/sh\n#RAD model=" + b"\x01" * 65_000 + b"\ntrue\n")
    for _ in range(4):
        jobs.submit("-H", "--gpus=1", "bytes.sh")
    assert is_rewritten(jobs, NEIGHBOUR)


def test_connections_that_starve_slurmctld(jobs: Jobs) -> None:
    loop = (
        "import socket, sys, time\n"
        "open_ones = []\n"
        "end = time.time() + 12\n"
        "while time.time() < end:\n"
        "    try:\n"
        "        s = socket.socket(socket.AF_UNIX); s.settimeout(0.5); s.connect(sys.argv[1]); s.send(b'{')\n"
        "        open_ones = [*open_ones[-400:], s]\n"
        "    except OSError: time.sleep(0.01)\n"
    )
    (jobs.folder / "loop.py").write_text(loop)
    socket_path = jobs.cluster.place.run / "radd.sock"
    command = ["runuser", "-u", USER, "--", "python3", str(jobs.folder / "loop.py"), str(socket_path)]
    flood = [subprocess.Popen(command, start_new_session=True) for _ in range(2)]
    try:
        jobs.cluster.clock.sleep(1)
        assert all(is_rewritten(jobs, NEIGHBOUR) for _ in range(6))
    finally:
        for each in flood:
            os.killpg(each.pid, 9)
            each.wait()


def test_radd_answers_a_users_own_submission(jobs: Jobs) -> None:
    ask = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_UNIX); s.settimeout(3); s.connect(sys.argv[1])\n"
        's.sendall(b\'{"v":1,"op":"submit","user_id":5,"partition":"gpu","gres":"gpu:1"}\\n\')\n'
        "sys.exit(b'rad2:' not in s.recv(65536))\n"
    )
    (jobs.folder / "ask.py").write_text(ask)
    argv = ("python3", str(jobs.folder / "ask.py"), str(jobs.cluster.place.run / "radd.sock"))
    assert not as_user(*argv, cluster=jobs.cluster)


def test_a_note_of_his_own_in_the_admin_comment(jobs: Jobs) -> None:
    job = submit(jobs, "-H")
    note = "AdminComment=rad: recovered start_in_s=0 - x"
    as_user("scontrol", "update", f"JobId={job}", note, cluster=jobs.cluster)
    assert "recovered" not in jobs.fields(job).get("AdminComment", "")


# --- what root reads ----------------------------------------------------------------------------------------------


def failing(jobs: Jobs, *argv: str, wrap: str) -> int:
    job = submit(jobs, "--no-requeue", *argv, wrap=wrap)
    jobs.wait(job, timeout_s=40)
    jobs.cluster.wait("it holds nothing any more", lambda: not allocation_of(jobs.cluster, job), 20)
    return job


def test_escape_sequences_in_logs_and_admin_comment(jobs: Jobs) -> None:
    job = failing(jobs, wrap=f"printf '\\033]0;owned\\007\\033[2J{WORDS}\\n' >&2; exit 1")
    logs = b"".join(path.read_bytes() for path in jobs.cluster.place.log.glob("*pilog.log"))
    logs += b"".join(path.read_bytes() for path in jobs.cluster.place.log.glob("*.out"))
    assert b"\x1b" not in logs
    assert "\x1b" not in jobs.fields(job).get("AdminComment", "")


def test_output_into_a_fifo(jobs: Jobs) -> None:
    """Root opens the output after the job: a FIFO that no job writes to must not hold it."""
    wrap = "rm -f out.txt; mkfifo out.txt; exit 1"
    began_s = jobs.cluster.clock.monotonic_s()
    failing(jobs, f"--output={jobs.folder}/out.txt", wrap=wrap)
    assert jobs.cluster.clock.monotonic_s() - began_s < 20


def test_output_swapped_for_a_file_of_root(jobs: Jobs) -> None:
    secret = jobs.cluster.place.root / "secret"
    secret.write_text(f"{WORDS} root's own words\n")
    secret.chmod(0o600)
    wrap = f"rm -f out.txt; ln -s {secret} out.txt; exit 1"
    job = failing(jobs, f"--output={jobs.folder}/out.txt", wrap=wrap)
    shown = (jobs.cluster.place.log / "epilog.log").read_text(errors="replace")
    assert "root's own words" not in shown + jobs.fields(job).get("AdminComment", "")


@pytest.mark.parametrize("what", ["fifo", "/dev/zero", "swapped"])
def test_a_summary_that_is_no_file(jobs: Jobs, what: str) -> None:
    """A submission with such a model= goes on within seconds, and slurmctld with it."""
    path = jobs.folder / "model.txt"
    swapper = None
    if what == "fifo":
        os.mkfifo(path, 0o666)
    elif what == "/dev/zero":
        path.symlink_to("/dev/zero")
    else:
        swap = (
            f"while :; do cp -f {jobs.folder}/models/resnet18_torchinfo.txt {path}; rm -f {path}; "
            f"ln -sf /etc/shadow {path}; rm -f {path}; mkfifo {path}; rm -f {path}; done"
        )
        swapper = subprocess.Popen(
            ["runuser", "-u", USER, "--", "sh", "-c", swap], stderr=subprocess.DEVNULL, start_new_session=True
        )
    try:
        for _ in range(3):
            began_s = jobs.cluster.clock.monotonic_s()
            job = jobs.submit(
                "-H", "--gpus=1", "--comment=rad:model=model.txt,batch_size=8", "--wrap", "true"
            )
            assert jobs.cluster.clock.monotonic_s() - began_s < 10
            assert job.job_id is not None, job.messages
            assert "root:" not in job.messages
    finally:
        if swapper is not None:
            os.killpg(swapper.pid, 9)
            swapper.wait()


def test_the_node_is_whole_after_all_of_this(jobs: Jobs) -> None:
    assert "drain" not in jobs.cluster.slurm("sinfo", "-h", "-o", "%T")
    jobs.cluster.wait("nothing is reserved", lambda: not jobs.cluster.allocations("n0"), 70)
    assert is_rewritten(jobs, NEIGHBOUR)
