"""Priority is lent to a rerun where our estimate was at fault, and no job keeps it or gets it by trying."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.control import JobView

pytestmark = pytest.mark.cluster

PROGRAMS = Path(__file__).resolve().parents[1] / "programs"
TOP = 4_294_901_760
"""Where priority/basic begins to count down; ordinary jobs have less."""
PATIENCE_S = 90
WORDS = "echo torch.OutOfMemoryError: CUDA out of memory. >&2"
MODEL = "model=models/resnet18_cifar_torchsummary.txt,batch_size=128,optimizer=sgd"
HOLDS = '[ -z "$SLURM_RESTART_COUNT" ] || exec sleep 600; '
"""Before a program: its rerun lasts until the test cancels it."""


@pytest.fixture(autouse=True)
def _a_fresh_day(cluster: Cluster) -> Iterator[None]:
    """Let no boost of another test count against this one's user."""
    (cluster.place.root / "state" / "boosts.json").unlink(missing_ok=True)
    cluster.restart_radd()
    yield


def seen(jobs: Jobs, job: int, until: str) -> list[JobView]:
    """Follow a job until a rerun of it is in a state, and return every view on the way."""
    return seen_of(jobs, {"it": job}, until)["it"]


def seen_of(jobs: Jobs, ids: Mapping[str, int], until: str = "RUNNING") -> dict[str, list[JobView]]:
    """Do the same for several jobs at once; views of those that are there already go on."""
    control = SlurmCommands(slurm_conf=str(jobs.cluster.place.slurm_conf), timeout_s=10)
    views: dict[str, list[JobView]] = {name: [] for name in ids}
    there: set[str] = set()

    def all_there() -> bool:
        for name, job in ids.items():
            view = control.job(job)
            if view is not None:
                views[name].append(view)
                if view.restarts > 0 and view.state == until:
                    there.add(name)
        return len(there) == len(ids)

    jobs.cluster.wait(f"the reruns are {until}", all_there, PATIENCE_S)
    return views


def fill_gpus(jobs: Jobs) -> None:
    """Let a job run on each GPU until FOLDER/go, next to which `underestimated` fits and its rerun does not."""
    waits = "while [ ! -e go ]; do sleep 0.1; done"
    for _ in range(4):
        filler = jobs.accepted("--gpus=1", "--comment=rad:memory=30G", "--wrap", waits)
        jobs.wait(filler, "RUNNING")


def underestimated(jobs: Jobs) -> int:
    """Submit a job whose summary hides what it needs: it fills its limit and requests more."""
    window = jobs.cluster.place.run / "n0" / "monitor" / "window.json"
    fills = f"exec python3 {PROGRAMS / 'fills.py'} {jobs.folder} {window}"
    return jobs.accepted("--open-mode=append", "--gpus=1", f"--comment=rad:{MODEL}", "--wrap", fills)


def lent(jobs: Jobs, job: int) -> JobView:
    """Wait until a job that was requeued has priority that is not its own, and return it as it waits."""
    control = SlurmCommands(slurm_conf=str(jobs.cluster.place.slurm_conf), timeout_s=10)
    seen: list[JobView | None] = []

    def waits() -> bool:
        seen.append(control.job(job))
        view = seen[-1]
        return view is not None and (view.state, view.restarts) == ("PENDING", 1) and view.nice < 0

    jobs.cluster.wait("priority is lent", waits, PATIENCE_S)
    assert seen[-1] is not None
    return seen[-1]


def test_an_estimate_of_rads_that_failed_is_lent_priority_until_the_rerun_starts(
    jobs: Jobs, cluster: Cluster
) -> None:
    fill_gpus(jobs)
    job = underestimated(jobs)
    first = lent(jobs, job).priority
    assert first <= TOP
    (jobs.folder / "go").touch()
    control = SlurmCommands(slurm_conf=str(cluster.place.slurm_conf), timeout_s=10)

    def restored() -> bool:
        view = control.job(job)
        return view is not None and view.nice == 0 and view.state == "RUNNING"

    cluster.wait("the priority is restored while the rerun runs", restored, 60)
    cluster.slurm("scontrol", "requeue", str(job), user="nobody")
    again = seen(jobs, job, "PENDING")[-1]
    assert (again.nice, again.restarts) == (0, 2)
    assert again.priority < first


def test_a_rerun_that_its_user_requeues_before_radd_looks_keeps_nothing(jobs: Jobs, cluster: Cluster) -> None:
    """The user holds it as well; that radd does not release it is shown in radd/requeued/test_priority_boosts.py."""
    fill_gpus(jobs)
    job = underestimated(jobs)
    lent(jobs, job)
    (jobs.folder / "go").touch()
    jobs.wait(job, "RUNNING", timeout_s=PATIENCE_S)
    cluster.daemons.stop("radd")
    cluster.slurm("scontrol", "requeuehold", str(job), user="nobody")
    jobs.wait(job, "PENDING")
    cluster.restart_radd()
    control = SlurmCommands(slurm_conf=str(cluster.place.slurm_conf), timeout_s=10)
    cluster.slurm("scontrol", "release", str(job), user="nobody")
    cluster.wait("radd takes it back", lambda: (view := control.job(job)) is not None and view.nice == 0, 20)


def test_what_the_user_chose_buys_no_priority(jobs: Jobs) -> None:
    """A size of his own, in whichever way, and words that he prints himself, far below our estimate or beyond it."""
    grows = f"{HOLDS}python3 fake_train.py --memory 3.8G,30G --seconds 3"
    prints = f"{HOLDS}python3 fake_train.py --memory {{}} --seconds 1.5; {WORDS}; exit 1"
    requests = {
        "memory=1M and the words": ("--gpus=1", "--comment=rad:memory=1M", "--wrap", prints.format("0.9G")),
        "a stated size": ("--gpus=1", "--comment=rad:memory=4G", "--wrap", grows),
        "never near our estimate": ("--gpus=1", f"--comment=rad:{MODEL}", "--wrap", prints.format("0.5G")),
        "shards by hand": ("--gres=shard:4", "--wrap", grows),
    }
    ids = {name: jobs.accepted("--open-mode=append", *argv) for name, argv in requests.items()}
    for name, views in seen_of(jobs, ids).items():
        assert {view.nice for view in views} == {0}, name
        assert max(view.priority for view in views) < TOP, name


def test_a_user_lowers_nice_only_as_slurm_allows(jobs: Jobs, cluster: Cluster) -> None:
    job = jobs.accepted("-H", "--gpus=1", "--comment=rad:memory=4G", "--wrap", "true")
    with pytest.raises(Exception, match=r"(?i)denied|permission"):
        cluster.slurm("scontrol", "update", f"JobId={job}", "Nice=-1000", user="nobody")
