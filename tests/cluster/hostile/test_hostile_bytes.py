"""What users write is bytes: none of them moves a column, a record, an id or a note that Slurm prints to root.

Every attempt runs as the user `nobody` on a real Slurm; `games` is the neighbour.
"""

from __future__ import annotations

import pwd
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from slurm_plugin.core.comments.admin_comment import Note, format_note, read_signed, signed_note
from slurm_plugin.core.comments.signed_comment import with_signed_booking
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.records.queue_position import QueuePosition
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.control import JobChange, JobView
from slurm_plugin.slurm.names import TASK_COLUMNS
from slurm_plugin.slurm.queries.accounting import Accounts
from slurm_plugin.slurm.queries.columns import cut
from slurm_plugin.slurm.queries.job_times import job_times
from slurm_plugin.slurm.queries.queue import waiting_jobs
from tests.cluster.conftest import started

pytestmark = pytest.mark.cluster

USER = pwd.getpwnam("nobody").pw_uid
NEIGHBOUR = pwd.getpwnam("games").pw_uid
ALL = bytes(range(1, 256))
TEXTS = (
    *(ALL, ALL[:127], ALL[127:], b"a\nb", b"\r\n\x0b\x0c\x1c\x85", b"\xff" * 255, b" " * 200, b"x" * 1000),
    "é€😀\u2028\u0085漢字".encode() * 20,
)
WORDS = (
    b"--job-name=",
    b"--comment=",
    b"--account=",
    b"--wckey=",
    b"--chdir=/",
    b"--output=",
    b"--mail-user=",
)
FIELDS = (
    *(*WORDS, b"--error=", b"--input=", b"--qos=", b"--network=", b"--mcs-label=", b"--container=", b"--bb="),
    *(b"--reservation=", b"--licenses=", b"--dependency=", b"--constraint=", b"--prefer=", b"--array="),
    *(b"--nodelist=", b"--exclude=", b"--partition=", b"--extra=", b"--tres-bind=", b"--gpu-bind="),
)
TYPES = (
    *(b"--gres=gpu:", b"--gres=shard:", b"--gpus=", b"--gpus-per-node=", b"--gpus-per-task="),
    *(b"--tres-per-task=gres/gpu:", b"--tres-per-task=gres:gpu:", b"--gpus-per-socket="),
)
"""Types of GRES that no node has, with a count of 0: Slurm keeps the text and ignores the part."""


@pytest.fixture
def slurm(cluster: Cluster) -> SlurmCommands:
    return SlurmCommands(slurm_conf=str(cluster.place.slurm_conf), timeout_s=20)


def raw(cluster: Cluster, *argv: bytes, user: str = "nobody") -> subprocess.CompletedProcess[bytes]:
    env = {name.encode(): value.encode() for name, value in cluster.env().items()}
    command = [b"runuser", b"-u", user.encode(), b"--", *argv]
    return subprocess.run(command, env=env, cwd="/tmp", capture_output=True, timeout=60, check=False)


def held_job(cluster: Cluster, *options: bytes, user: str = "nobody") -> int | None:
    """Submit a held job; None if Slurm refuses it."""
    argv = (b"sbatch", b"--parsable", b"-H", b"-n1", b"--mem=10", *options, b"--wrap", b"sleep 600")
    done = raw(cluster, *argv, user=user)
    return int(done.stdout.split()[-1]) if done.returncode == 0 else None


def steady(view: JobView) -> JobView:
    return replace(view, priority=0, reason="", start_time_s=None)


def runs(slurm: SlurmCommands, job: int) -> bool:
    view = slurm.job(job)
    return view is not None and view.state == "RUNNING"


def ids(cluster: Cluster) -> set[int]:
    """All jobs that Slurm knows, by their numbers alone."""
    return set(map(int, cluster.slurm("squeue", "-h", "-a", "-t", "all", "-O", "JobID:20").split()))


def test_every_byte_in_every_field_moves_no_record(jobs: Jobs, slurm: SlurmCommands) -> None:
    cluster = jobs.cluster
    first = held_job(cluster, b"--comment=mine", user="games") or 0
    before = steady(next(view for view in slurm.jobs() if view.job_id == first))
    taken = []
    for text in TEXTS:
        typed = bytes(byte for byte in text if byte not in b",:()=")[:240]
        taken += [held_job(cluster, option + text) for option in FIELDS]
        taken += [held_job(cluster, option + typed + b":0") for option in TYPES]
    hostile = {job for job in taken if job is not None}
    last = held_job(cluster, b"--comment=mine", user="games") or 0
    assert len(hostile) > 40, "most are taken by Slurm"
    views = {view.job_id: view for view in slurm.jobs()}
    assert views.keys() == ids(cluster) >= hostile | {first, last}
    assert steady(views[first]) == before == replace(steady(views[last]), job_id=first)
    assert {views[job].user_id for job in hostile} == {USER}
    stands = {each.job_id: each for each in slurm.standings()}
    assert stands.keys() == {job for job, view in views.items() if view.state == "PENDING"} >= hostile
    assert {stands[job].user_id for job in hostile} == {USER}
    assert {stands[job].nice for job in hostile} == {0}
    for job in sorted(hostile):
        view = slurm.job(job)
        assert view is not None and (view.job_id, view.user_id, view.admin_comment) == (job, USER, "")
        assert slurm.exact(job) == str(job)
    assert waiting_jobs(slurm_conf=str(cluster.place.slurm_conf)) is not None


def test_running_jobs_with_hostile_types_blind_no_job(jobs: Jobs, slurm: SlurmCommands) -> None:
    """Two of them moved every list of jobs, so that no reservation was released and no rerun was sent on."""
    mine = []
    for number in (3, 247):
        done = raw(
            jobs.cluster,
            *(b"sbatch", b"--parsable", b"-n1", b"--output=/dev/null", b"--mem=10"),
            b"--gres=gpu:" + b"\xff" * number + b":0,shard:1",
            *(b"--wrap", b"sleep 600"),
        )
        assert done.returncode == 0, done.stderr
        mine.append(int(done.stdout.split()[-1]))
    foreign = jobs.accepted("-n1", "--mem=10", "--wrap", "sleep 600", user="games")
    for job in (*mine, foreign):
        jobs.wait(job, "RUNNING")
    seen = {view.job_id: view for view in slurm.jobs(node="n0", states=("RUNNING",))}
    assert seen.keys() >= {*mine, foreign} and seen[foreign].user_id == NEIGHBOUR


def columns_of_another(victim: int) -> tuple[bytes, bytes]:
    """Types that wrote ArrayJobID, ArrayTaskID, HetJobID, HetJobOffset and Nice of their own record."""
    node = b"gpu:" + b"\xff" * 247 + b":0,shard:1"
    fill = 1024 - (9 + 3 * 247) - 9
    job = b"\xff" * (fill // 3) + b"a" * (fill % 3) + b"\xff" * 6 + b"aa" + b"%" + b"\xff" * 85
    job += b"%-20d" % victim + b"0".ljust(20) + b"0".ljust(16)
    return node, job + b":0"


def test_root_requeues_no_other_job_than_the_named_one(jobs: Jobs, slurm: SlurmCommands) -> None:
    victim = jobs.accepted("-n1", "--mem=10", "--wrap", "sleep 600", user="games")
    jobs.cluster.wait("it runs", lambda: runs(slurm, victim), 60)
    node, gpus = columns_of_another(victim)
    done = raw(
        jobs.cluster,
        *(
            b"sbatch",
            b"--parsable",
            b"-n1",
            b"--output=/dev/null",
            b"--mem=10",
            b"--gres=" + node,
            b"--gpus=" + gpus,
        ),
        *(b"--wrap", b"sleep 600"),
    )
    if done.returncode != 0:
        pytest.skip("this Slurm refuses the request")
    mine = int(done.stdout.split()[-1])
    jobs.cluster.wait("it runs", lambda: runs(slurm, mine), 60)
    view = slurm.job(mine)
    assert view is not None and view.nice == 0
    slurm.requeue(mine)
    jobs.cluster.wait("mine goes back", lambda: jobs.restarts(mine) == 1, 20)
    assert (jobs.state(victim), jobs.restarts(victim)) == ("RUNNING", 0)


@pytest.mark.parametrize("at", [1100, 1024, 1000, 512, 256, 20, 1], ids=str)
def test_no_comment_is_taken_for_a_note(jobs: Jobs, slurm: SlurmCommands, at: int) -> None:
    """Each byte that is no UTF-8 became three, so that the rest was where the AdminComment was due."""
    forged = b"rad: requeued restart=1 submitted=1 accrued=1 priority=4294901758 - x"
    wide = min(233, at // 3)
    comment = (b"\xff" * wide + b"a" * (at - 3 * wide) + forged)[:1023]
    job = held_job(jobs.cluster, b"--comment=" + comment)
    assert job is not None
    view, stands = slurm.job(job), slurm.standing(job)
    assert view is not None and view.admin_comment == "" and (view.user_id, view.nice) == (USER, 0)
    assert view.comment.encode(errors="surrogateescape").startswith(comment[:900].rstrip(b" "))
    assert stands is not None and (stands.admin_comment, stands.nice) == ("", 0)


@pytest.fixture
def key(cluster: Cluster) -> bytes:
    return (cluster.place.etc / "key").read_bytes()


POSITION = QueuePosition(submitted_s=1, accrues_s=1, priority=4294901758)
NOTE = Note(event="requeued", start_in_s=5, restart=0, position=POSITION, detail="no idle GPU")


@pytest.mark.parametrize(
    "detail",
    [
        "\"quoted\" 'and' \\n",
        "a=b,c+=d;e|f",
        "漢字 😀 é",
        "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0)",
    ],
)
def test_a_note_comes_back_from_slurm_as_it_was_signed(
    jobs: Jobs, slurm: SlurmCommands, key: bytes, detail: str
) -> None:
    job = held_job(jobs.cluster) or 0
    note = replace(NOTE, detail=detail)
    slurm.update(
        job, JobChange(admin_comment=signed_note(note, job_id=job, user_id=USER, key=key), comment="x")
    )
    view = slurm.job(job)
    assert view is not None
    assert read_signed(view.admin_comment, job_id=job, user_id=USER, key=key) == note


def test_only_a_note_that_was_signed_for_this_run_raises_a_job(
    jobs: Jobs, slurm: SlurmCommands, key: bytes
) -> None:
    """What was signed for the control's job is copied to others, written unsigned, or changed in one word."""
    cluster = jobs.cluster
    # Each GPU is taken, so that what follows waits.
    whole = ("--gpus=1", "--mem=10", "--comment=rad:policy=exclusive")
    for _ in range(4):
        jobs.wait(jobs.accepted(*whole, "--wrap", "sleep 600", user="games"), "RUNNING")
    waits = [jobs.accepted(*whole, "--wrap", "sleep 600", user="games") for _ in range(2)]
    tests = {name: jobs.accepted(*whole, "--wrap", "true") for name in ("copied", "plain", "changed")}
    control = jobs.accepted(*whole, "--wrap", "true")
    for job in (*tests.values(), control):
        raw(cluster, b"scontrol", b"hold", b"%d" % job)
    assert waits

    def text(job: int) -> str:
        return signed_note(NOTE, job_id=job, user_id=USER, key=key)

    notes = {
        "copied": text(control),
        "plain": format_note(NOTE),
        "changed": text(tests["changed"]).replace("priority=429490175", "priority=429490176"),
    }
    for name, job in tests.items():
        assert read_signed(notes[name], job_id=job, user_id=USER, key=key) is None, name
        slurm.update(job, JobChange(admin_comment=notes[name]))
        view = slurm.job(job)
        assert view is not None and view.admin_comment == notes[name]
    slurm.update(control, JobChange(admin_comment=text(control)))
    for job in (*tests.values(), control):
        raw(cluster, b"scontrol", b"release", b"%d" % job)
    heard = cluster.place.log / "radd.out"
    cluster.wait(
        "radd heard of the last note", lambda: f"job {control}: rad: requeued" in heard.read_text(), 20
    )
    cluster.wait("the control is raised", lambda: int(jobs.fields(control).get("Nice", "0")) < 0, 40)
    assert {name: jobs.fields(job).get("Nice") for name, job in tests.items()} == dict.fromkeys(tests, "0")


def test_root_does_nothing_to_a_job_whose_owner_is_another(cluster: Cluster, jobs: Jobs) -> None:
    job = held_job(cluster, user="games") or 0
    conf = str(cluster.place.slurm_conf)
    slurm = SlurmCommands(slurm_conf=conf, timeout_s=20, owners={job: USER})
    for act in (slurm.job, slurm.standing, slurm.exact, slurm.requeue):
        with pytest.raises(SlurmError, match="to its hook"):
            act(job)
    with pytest.raises(SlurmError, match="to its hook"):
        slurm.update(job, JobChange(nice=-5))
    assert jobs.fields(job)["Nice"] == "0"
    right = SlurmCommands(slurm_conf=conf, timeout_s=20, owners={job: NEIGHBOUR})
    right.update(job, JobChange(nice=-5))
    assert jobs.fields(job)["Nice"] == "-5"


@pytest.mark.parametrize("text", [ALL, b"\xff" * 255, b"a\nb_[1-9]"])
def test_a_task_of_an_array_is_named_as_itself_whatever_its_owner_writes(
    jobs: Jobs, slurm: SlurmCommands, text: bytes
) -> None:
    array = held_job(jobs.cluster, b"--array=1,3-9:2", b"--job-name=" + text, b"--comment=" + text) or 0
    assert slurm.exact(array).startswith(f"{array}_[1,3")
    slurm.update(array, JobChange(nice=7))
    view = slurm.job(array)
    assert view is not None and view.nice == 7
    jobs.cluster.slurm("scontrol", "update", f"JobId={array}_3", "Nice=0")  # it has a record of its own now
    rows = cut(slurm.columns("squeue", TASK_COLUMNS, "-a", "-t", "all", "-j", f"{array}_3"), TASK_COLUMNS)
    (task,) = (int(row["JobID"]) for row in rows)
    assert slurm.exact(task) == f"{array}_3"
    slurm.update(task, JobChange(nice=3))
    nice = [seen.nice for seen in map(slurm.job, (task, array)) if seen is not None]
    assert nice == [3, 7], "one task alone is changed"


def test_a_component_of_a_heterogeneous_job_stays_its_owner_s(jobs: Jobs, slurm: SlurmCommands) -> None:
    odd = b"--gres=gpu:" + b"\xff" * 247 + b":0,shard:1"
    done = raw(
        jobs.cluster,
        *(b"sbatch", b"--parsable", b"-H", b"-n1", b"--mem=10", odd, b":", b"-n1", b"--mem=10", odd),
        *(b"--wrap", b"true"),
    )
    if done.returncode != 0:
        pytest.skip(f"no heterogeneous job here: {done.stderr[-200:]!r}")
    first = int(done.stdout.split()[-1])
    for job in (first, first + 1):
        view = slurm.job(job)
        assert view is not None and view.user_id == USER
        assert slurm.exact(job) == str(job)


def test_no_forged_line_gives_a_job_more_than_slurm_gave(jobs: Jobs, slurm: SlurmCommands) -> None:
    forged = b"x\n     Nodes=n0 CPU_IDs=0 Mem=100 GRES=shard:simulated:40(IDX:0)\n"
    done = raw(
        jobs.cluster,
        *(
            b"sbatch",
            b"--parsable",
            b"-n1",
            b"--output=/dev/null",
            b"--mem=10",
            b"--gres=shard:2",
            b"--job-name=" + forged,
        ),
        *(b"--comment=" + forged, b"--wrap", b"sleep 600"),
    )
    job = int(done.stdout.split()[-1])
    jobs.cluster.wait("it runs", lambda: runs(slurm, job), 60)
    assert slurm.given(job).rpartition(":")[2] in ("1", "2")


def test_a_user_s_own_words_keep_every_byte_when_root_adds_a_signed_booking(
    jobs: Jobs, slurm: SlurmCommands
) -> None:
    words = bytes(byte for byte in ALL if byte not in b" \n")
    job = held_job(jobs.cluster, b"--comment=" + words, b"--job-name=" + words) or 0
    view = slurm.job(job)
    assert view is not None
    slurm.update(
        job, JobChange(comment=with_signed_booking(view.comment, "rad2:shared:gpus=1:0123456789abcdef"))
    )
    found = slurm.job(job)
    assert found is not None
    kept = found.comment.encode(errors="surrogateescape").partition(b" rad2:")[0]
    assert kept.strip() == words.strip()
    assert slurm.names(job)["x"].encode(errors="surrogateescape") == words


# --- the accounts -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def counted(place: Place) -> Iterator[Cluster]:
    yield from started(place, ClusterSpec(nodes=(NodeSpec(name="n0"),), accounts=True), name="counted")


def test_no_text_in_the_accounts_forges_or_hides_a_record(counted: Cluster) -> None:
    conf = counted.place.slurm_conf
    # A record of another job behind a line end, as wide as sacct prints one.
    forged = b"z\n" + b"%-20d %-12d %s" % (99, 0, b"rad: ended peak_mib=1")
    texts = (*TEXTS[:-2], forged, b"\xff" * 1000, "a\u2028b\x0bc".encode())
    sent = {}
    for text in (b"first", *texts, b"last"):
        options = (b"--comment=" + text[:1000], b"--job-name=" + text[:400], b"--wckey=" + text[:200])
        done = raw(
            counted,
            *(
                b"sbatch",
                b"--parsable",
                b"-n1",
                b"--output=/dev/null",
                b"--mem=10",
                *options,
                b"--wrap",
                b"true",
            ),
            user="games",
        )
        assert done.returncode == 0, done.stderr
        sent[int(done.stdout.split()[-1])] = text
    accounts = Accounts(conf)
    counted.wait(
        "all are in the accounts", lambda: {job.job_id for job in accounts.completed(3600)} == {*sent}, 90
    )
    counted.wait(
        "their users are, too", lambda: {job.user_id for job in accounts.completed(3600)} == {NEIGHBOUR}, 60
    )
    assert {(job.user_id, job.admin_comment) for job in accounts.completed(3600)} == {(NEIGHBOUR, "")}
    comments = accounts.comments(sent)
    assert comments.keys() == sent.keys()
    first, *_, last = sent
    assert (comments[first], comments[last]) == ("first", "last")
    for job in sent:
        times = job_times(job, slurm_conf=str(conf), accounts=True)
        assert times is not None and (times.job_id, times.user_id) == (job, NEIGHBOUR)
        assert times.state in ("COMPLETING", "COMPLETED"), "by squeue, or by sacct once that forgot it"
