"""Jobs of several GPUs that share them: shards of distinct GPUs by Slurm's own count, steps as users know them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus
from slurm_plugin.monitor.window import read_window
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.versions import traits
from tests.cluster import trainings
from tests.cluster.conftest import jobs_on, started
from tests.cluster.submission.test_dry_run import dry_run, said_by_slurm

pytestmark = pytest.mark.cluster

NODE = NodeSpec(name="n0", gpu_mib=(40960, 40960))
SHOW = "IFS=,; set -- $CUDA_VISIBLE_DEVICES; echo $SLURM_PROCID of $SLURM_NTASKS on $#"


@pytest.fixture(scope="module")
def own(place: Place, cluster: Cluster) -> Iterator[Cluster]:
    slurm = SlurmCommands(slurm_conf=str(cluster.place.slurm_conf), timeout_s=10)
    if not traits(slurm.version()).spreads_shards:
        pytest.skip("this Slurm keeps a job's shards on one GPU")
    spec = ClusterSpec(
        nodes=(NODE,),
        spread_shards=True,
    )
    yield from started(place, spec, name="several")


@pytest.fixture
def jobs(own: Cluster, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    yield from jobs_on(own, request)


def train(memory: str, seconds: float) -> str:
    return f"python3 fake_train.py --memory {memory} --seconds {seconds}"


def test_jobs_of_two_gpus_share_both_with_each_other_and_with_smaller_jobs(jobs: Jobs) -> None:
    said = "--comment=rad:memory=12G"
    ids = [jobs.accepted("--gpus=2", said, "--wrap", trainings.train("11G")) for _ in range(2)]
    ids += [jobs.accepted("--gpus=1", said, "--wrap", trainings.train("11G")) for _ in range(2)]
    late = jobs.accepted("--gpus-per-node=2", said, "--wrap", trainings.train("11G"))
    wanted = dict(zip((*ids, late), (2, 2, 1, 1, 2), strict=True))
    watcher = trainings.follow(jobs, wanted, gpus=wanted, together=ids)
    for job, gpus in wanted.items():
        assert {len(run.gpus) for run in watcher.of(job) if run.gpus} == {gpus}, (
            "distinct, and never one more"
        )
        assert job == late or jobs.restarts(job) == 0, "no job is requeued"
    assert watcher.fullest_share <= 1.0
    assert jobs.cluster.allocations("n0") == []


def test_steps_have_the_tasks_and_gpus_that_the_user_requested(jobs: Jobs) -> None:
    """One task with both GPUs, as for torchrun, and a step after it; two on both; two with one each; four on one."""
    said = "--comment=rad:memory=5G"
    script = f"srun bash -c '{SHOW}; sleep 1' & srun -n1 bash -c '{SHOW}; sleep 1' && wait $!"
    pair = jobs.accepted("--gres=gpu:2", "-c3", said, "--wrap", script)
    tasks = jobs.accepted("--gpus=2", "-n2", said, "--wrap", f"srun bash -c '{SHOW}'")
    each = jobs.accepted("--gpus-per-task=1", "-n2", said, "--wrap", f"srun bash -c '{SHOW}'")
    four = jobs.accepted("--gpus=1", "-n4", said, "--wrap", f"srun bash -c '{SHOW}'")
    for job in (pair, tasks, each, four):
        assert jobs.wait(job)["JobState"] == "COMPLETED", jobs.output(job)
    waited = "srun: Step created for StepId="
    shown = [line for line in jobs.output(pair).splitlines() if not line.startswith(waited)]
    assert shown == ["0 of 1 on 2", "0 of 1 on 2"]
    assert sorted(jobs.output(tasks).splitlines()) == ["0 of 2 on 2", "1 of 2 on 2"]
    assert sorted(jobs.output(each).splitlines()) == ["0 of 2 on 1", "1 of 2 on 1"]
    assert sorted(jobs.output(four).splitlines()) == [f"{task} of 4 on 1" for task in range(4)]
    assert jobs.fields(pair)["NumCPUs"] == "4", "three, rounded up to one number for each GPU"


def test_the_dry_run_knows_that_slurm_here_spreads_shards(jobs: Jobs) -> None:
    path = jobs.folder / "pair.sh"
    path.write_text("#!/bin/sh\n#SBATCH --gpus=2\n#RAD memory=12G\ntrue\n")
    _, reported = dry_run(jobs, path.name)
    job = jobs.submit("--hold", path.name)
    assert said_by_slurm(job.messages) == reported["sbatch"]["says"] != []
    assert job.job_id is not None and reported["sbatch"]["gres"].startswith("2 x shard:")
    assert jobs.fields(job.job_id)["TresPerTask"] == reported["sbatch"]["gres"].replace("2 x ", "gres/")


def test_a_job_of_two_gpus_that_ran_out_of_memory_gets_both_to_itself(jobs: Jobs) -> None:
    """One of its GPUs is full when it grows; rad-monitor is not quicker, and without MPS nothing else holds it back."""
    full = jobs.accepted("--gpus=1", "--comment=rad:memory=30G", "--wrap", train("29G", 600))
    jobs.wait(full, "RUNNING")
    job = jobs.accepted("--gpus=2", "--comment=rad:memory=6G", "--wrap", train("5G,20G", 0.5))
    jobs.cluster.wait("it ran out of memory", lambda: jobs.restarts(job) > 0, 60)
    jobs.cluster.slurm("scancel", str(full))
    done = jobs.wait(job, "COMPLETED", timeout_s=60)
    assert (done["Restarts"], done["TresPerTask"].rpartition("gres/")[2]) == ("1", "shard:39")


def test_while_the_guard_is_away_no_job_joins_what_no_cap_holds(jobs: Jobs, own: Cluster) -> None:
    """A job submitted meanwhile waits a moment, starts all the same if it cannot wait, and shares when radd is back."""
    pair = jobs.accepted("--gpus=2", "--comment=rad:memory=12G", "--wrap", train("11G", 600))
    jobs.wait(pair, "RUNNING")
    own.daemons.kill("monitor-n0")
    own.wait("the monitor's last word is old", lambda: not watched(own), 30)
    late = jobs.accepted("--gpus=2", "--comment=rad:memory=12G", "--wrap", train("11G", 1))
    own.wait(f"job {late} went back", lambda: jobs.restarts(late) > 0, 30)
    firm = jobs.accepted("--gpus=1", "--no-requeue", "--comment=rad:memory=12G", "--wrap", train("11G", 1))
    assert jobs.wait(firm, "COMPLETED", timeout_s=30)["Restarts"] == "0", "it is not failed for our fault"
    own.wait(f"the end of {firm} woke {late}, and it went back again", lambda: jobs.restarts(late) > 1, 30)
    assert jobs.output(late) == "" and jobs.state(pair) == "RUNNING"
    own.start_monitor(NODE)
    jobs.wait(late, "COMPLETED", timeout_s=60)
    assert jobs.state(pair) == "RUNNING", "next to it"
    assert own.slurm("sinfo", "-R", "-h") == ""


def test_a_job_that_books_little_and_takes_much_makes_way_for_jobs_that_slurm_starts(jobs: Jobs) -> None:
    """No cap binds a job of two GPUs: it may use what no job books, until one does."""
    overrunner = jobs.accepted("--gpus=2", "--comment=rad:memory=6G", "--wrap", train("33G", 60))
    own = jobs.cluster
    own.wait("it takes what it did not book", lambda: taken(own) > 30 * GIB, 40)
    honest = jobs.accepted("--gpus=1", "--comment=rad:memory=20G", "--wrap", train("19G", 1))
    # Slurm may start the overrunning job's rerun first, which has both GPUs to itself for as long as it trains.
    jobs.wait(honest, "COMPLETED", timeout_s=150)
    assert jobs.restarts(overrunner) > 0


def watched(cluster: Cluster) -> bool:
    return read_window(cluster.place.run / "n0", now_s=cluster.clock.now_s()) is not None


def taken(cluster: Cluster) -> int:
    return max(
        physical_gpu.memory_used_bytes for physical_gpu in SimulatedGpus(cluster.place.gpus("n0")).read()
    )


def test_without_the_word_in_slurm_a_job_of_two_gpus_keeps_them(jobs: Jobs, own: Cluster) -> None:
    """An admin takes it out of slurm.conf and restarts slurmctld, and puts it back; radd goes on all the while."""
    conf = own.place.slurm_conf
    text = conf.read_text()
    said = "--comment=rad:memory=6G"

    def requested_as() -> str:
        job = jobs.accepted("--hold", "--gpus=2", said, "--wrap", "true")
        fields = jobs.fields(job)
        own.slurm("scancel", str(job))
        return "shards" if "shard" in fields.get("TresPerTask", "") else "gpus"

    def heard(times: int) -> None:
        own.wait("radd read it again", lambda: own.logs(10_000).count("slurm.conf read again") >= times, 20)

    try:
        assert requested_as() == "shards"
        before = own.logs(10_000).count("slurm.conf read again")
        conf.write_text(text.replace(",MULTIPLE_SHARING_GRES_PJ", ""))
        heard(before + 1)
        assert requested_as() == "gpus"
        own.restart_slurmctld()
        assert requested_as() == "gpus"
        conf.write_text(text)
        heard(before + 2)
        assert requested_as() == "gpus", "slurmctld does not know it yet"
    finally:
        conf.write_text(text)
        own.restart_slurmctld()
    own.wait("radd shares them again", lambda: requested_as() == "shards", 30)


def test_steps_that_ask_for_gpus_get_the_jobs(jobs: Jobs) -> None:
    """A step of two tasks with a GPU each finds one in each task, as it does in a job with two GPUs of its own."""
    each = f"'{SHOW}'"
    requests = (
        "--gpus=2",
        "--gres=gpu:1",
        "-G1",
        "--gpus-per-task=1 -n2 --overcommit",
        "--mem-per-gpu=20",
    )
    requests += ("--ntasks-per-gpu=1 --overcommit", "--gres=none")
    script = "\n".join(
        ["#!/bin/sh", *(f"srun -l {ask} sh -c {each} || echo failed {ask}" for ask in requests)]
    )
    (jobs.folder / "steps.sh").write_text(f"{script}\n")
    done = jobs.wait(jobs.accepted("--gpus=2", "-c2", "--comment=rad:memory=12G", "steps.sh"), timeout_s=60)
    said = jobs.output(int(done["JobId"]))
    assert done["JobState"] == "COMPLETED" and "failed" not in said, said
    counted = sorted(line.partition(" on ")[2] for line in said.splitlines() if " on " in line)
    assert counted == ["1"] * 6 + ["2"] * 3, said
