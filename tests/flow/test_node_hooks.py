"""The hooks as slurmd starts them: their own processes, slurmd's environment, simulated GPUs, no Slurm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from small_disks import fill, small_disk

from lab.bare_node import comment_of, job_environment, make_bare_node
from prolog.growing import GROWING
from prolog.inherited import OF_A_JOB, OF_MPS, SET
from slurm_plugin.admin.own_files.templates import render, templates_folder
from slurm_plugin.core.booking.verification import partition_mark
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.errors import CommandError
from slurm_plugin.core.ledger.ended_runs import EndedRun, EndedRuns
from slurm_plugin.core.ledger.job_file import JobFile
from slurm_plugin.core.ledger.store import LedgerStore, boot_id
from slurm_plugin.core.logs.events import EventKind, as_text, from_line
from slurm_plugin.core.process.run import run
from slurm_plugin.core.records.submission import Booking, RequestedTasks
from slurm_plugin.core.units import GIB
from slurm_plugin.guard.incident_file import write_incidents
from slurm_plugin.guard.incidents import Incident
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus
from slurm_plugin.monitor.window import JobUsage, read_job, write_job, write_window
from slurm_plugin.mps.quarantine import Caused, add_fault
from slurm_plugin.mps.state import State, read_state, write_state

SHARED = Booking(
    kind="shared",
    memory_bytes=4 * GIB,
    estimate_bytes=3 * GIB,
    profile_key="ab12",
    shards=4,
    partitions=(partition_mark("gpu"),),
)
WHOLE = Booking(kind="whole", partitions=(partition_mark("gpu"),))


class Hooks:
    """A node with two simulated GPUs of 10 GiB."""

    def __init__(self, folder: Path, *, top: str = "", partition: str = "") -> None:
        self.folder = folder
        make_bare_node(folder, gpus=2, gpu_gib=10, top=top, partition=partition)

    def run(self, module: str, job_id: int = 7, *, config: str | None = None, **env: str) -> str:
        argv = [sys.executable, "-I", "-m", module, "--config", config or f"{self.folder}/rad.toml"]
        said = ""
        for _ in range(3):
            before = len(self.log(module))
            said = run(argv, timeout_s=20, env={**self.slurm(job_id), **env})
            if module != "prolog" or EventKind.WITHOUT_MPS.value not in self.log(module)[before:]:
                break  # else the stand-in for MPS answered too late on a busy machine; Slurm may run it again, too
        return said

    def slurm(self, job_id: int) -> dict[str, str]:
        """Return what slurmd shows its hooks of a job."""
        more = {"SLURM_JOB_USER": "root", "SLURM_JOB_WORK_DIR": str(self.folder), "SLURMD_NODENAME": "n0"}
        return job_environment(job_id, SHARED, **more)

    @property
    def whole(self) -> str:
        """Return the comment of a job that has a GPU for itself."""
        return comment_of(WHOLE)

    def log(self, name: str) -> str:
        path = self.folder / "log" / f"{name}.log"
        return path.read_text() if path.exists() else ""

    @property
    def reserved(self) -> list[int]:
        store = LedgerStore(self.folder / "run", clock=SystemClock(), boot_id=boot_id())
        return [allocation.job_id for allocation in store.read().ledger.allocations]


@pytest.fixture
def hooks(tmp_path: Path) -> Hooks:
    return Hooks(tmp_path)


def test_a_job_is_capped_above_its_booking_where_its_booking_says_so(hooks: Hooks) -> None:
    booking = replace(SHARED, cap_bytes=30 * GIB, smact=0.5)
    hooks.run("prolog", 6, SLURM_JOB_COMMENT=comment_of(booking))
    assert JobFile(hooks.folder / "run", 6).variables()["RAD_CAP_MIB"] == "4096", "no monitor watches"
    hooks.run("epilog", 6)
    physical_gpus = SimulatedGpus(hooks.folder / "gpus").read()
    write_window(
        hooks.folder / "run", physical_gpus, now_s=SystemClock().now_s() + 4
    )  # hooks take a while to start
    hooks.run("prolog", SLURM_JOB_COMMENT=comment_of(booking))
    variables = JobFile(hooks.folder / "run", 7).variables()
    assert (variables["RAD_BOOKED_MIB"], variables["RAD_CAP_MIB"]) == ("4096", "10240"), (
        "no more than the GPU"
    )
    assert variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=10240M"
    (allocation,) = (
        LedgerStore(hooks.folder / "run", clock=SystemClock(), boot_id=boot_id()).read().ledger.allocations
    )
    assert (allocation.booked_bytes, allocation.limit_bytes, allocation.smact) == (4 * GIB, 10 * GIB, 0.5)


def test_an_ordinary_job_from_prolog_to_epilog(hooks: Hooks) -> None:
    hooks.run("prolog")
    assert hooks.reserved == [7]
    exports = dict(
        line.removeprefix("export ").split("=", 1) for line in hooks.run("prolog.task_prolog").splitlines()
    )
    assert (exports["CUDA_VISIBLE_DEVICES"], exports["RAD_GPUS"]) == ("0", "GPU-0")
    assert exports["APPTAINERENV_CUDA_VISIBLE_DEVICES"] == "GPU-0", "a container may not see the pipe"
    assert exports["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert exports["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=4096M"
    assert (exports["RAD_BOOKED_MIB"], exports["RAD_CAP_MIB"], exports["RAD_ESTIMATE_MIB"]) == (
        "4096",
        "4096",
        "3072",
    )
    assert exports["RAD_GPU_INDICES"] == "0"
    handed_out = {name for name in exports if name.startswith(("RAD_", "CUDA_MPS_"))}
    assert handed_out <= {*OF_A_JOB, *OF_MPS}, "a job that is submitted from this one would keep the others"
    for _ in range(2):
        hooks.run("epilog", SLURM_JOB_EXIT_CODE="0")
    assert hooks.reserved == []
    assert list((hooks.folder / "run" / "placed").iterdir()) == []
    rows = [json.loads(line) for line in (hooks.folder / "state" / "peaks.jsonl").read_text().splitlines()]
    assert [(row["job"], row["outcome"]) for row in rows] == [(7, "ok")], (
        "the second Epilog has no more to say"
    )


def test_frameworks_that_allocate_in_advance_grow_in_a_shared_job_unless_its_user_chose(hooks: Hooks) -> None:
    hooks.run("prolog")
    tensorflow, jax = "export TF_FORCE_GPU_ALLOW_GROWTH=true", "export XLA_PYTHON_CLIENT_PREALLOCATE=false"
    assert {tensorflow, jax} <= set(hooks.run("prolog.task_prolog").splitlines())
    chosen = hooks.run("prolog.task_prolog", TF_FORCE_GPU_ALLOW_GROWTH="false").splitlines()
    assert jax in chosen and not any("TF_FORCE" in line for line in chosen)
    hooks.run("prolog", 8, SLURM_JOB_COMMENT=hooks.whole, SLURM_JOB_GPUS="1")
    lines = hooks.run("prolog.task_prolog", 8, SLURM_JOB_COMMENT=hooks.whole).splitlines()
    assert "export RAD_KIND=whole" in lines and not {tensorflow, jax} & set(lines), lines


def test_what_a_shared_job_sets_for_programs_ends_with_it_but_not_what_its_user_sets(hooks: Hooks) -> None:
    """sbatch passes its submitter's environment on, and JAX in an unmanaged job would allocate as in a shared one."""
    hooks.run("prolog")
    of_7 = dict(
        line.removeprefix("export ").split("=", 1) for line in hooks.run("prolog.task_prolog").splitlines()
    )
    own = {**of_7, "TF_FORCE_GPU_ALLOW_GROWTH": "false"}  # set in the script of job 7
    unmanaged = hooks.run("prolog.task_prolog", 9, **own).splitlines()
    assert {"unset XLA_PYTHON_CLIENT_PREALLOCATE", "unset CUDA_DEVICE_ORDER", "unset RAD_SET"} <= set(
        unmanaged
    )
    assert not any("TF_FORCE" in line for line in unmanaged)
    step = hooks.run("prolog.task_prolog", **of_7).splitlines()
    assert not any(line.startswith("unset") or "RAD_SET" in line for line in step), (
        "it keeps what its script has"
    )
    hooks.run("prolog", 8)
    shared = hooks.run("prolog.task_prolog", 8, **of_7).splitlines()
    name = "XLA_PYTHON_CLIENT_PREALLOCATE"
    assert shared.index(f"unset {name}") < shared.index(f"export {name}=false")
    assert (
        "export RAD_SET=TF_FORCE_GPU_ALLOW_GROWTH,XLA_PYTHON_CLIENT_PREALLOCATE,CUDA_DEVICE_ORDER" in shared
    )


@pytest.mark.parametrize(("form", "named"), [("index", "0"), ("uuid", "GPU-0")])
def test_a_shared_job_reads_a_number_of_its_gpu_unless_the_site_wants_uuids(
    tmp_path: Path, form: str, named: str
) -> None:
    hooks = Hooks(tmp_path, partition=f'visible_devices = "{form}"')
    hooks.run("prolog")
    assert f"export CUDA_VISIBLE_DEVICES={named}" in hooks.run("prolog.task_prolog").splitlines()


def test_tasks_with_shards_to_which_slurm_names_no_gpu_read_their_jobs(hooks: Hooks) -> None:
    hooks.run("prolog")
    step = {"SLURM_STEP_ID": "0", "SLURM_SHARDS_ON_NODE": "4"}
    named = {"export SLURM_GPUS_ON_NODE=1", "export SLURM_STEP_GPUS=0"}
    assert named <= set(hooks.run("prolog.task_prolog", **step).splitlines())
    by_slurm = {"SLURM_GPUS_ON_NODE": "1", "SLURM_STEP_GPUS": "0"}
    for task in ({**step, **by_slurm}, {"SLURM_STEP_ID": "0"}, {"SLURM_SHARDS_ON_NODE": "4"}):
        assert not named & set(hooks.run("prolog.task_prolog", **task).splitlines()), task


def served_by(hooks: Hooks, job_id: int) -> str:
    """Return the key of the MPS server that a job was given."""
    pipe = JobFile(hooks.folder / "run", job_id).variables()["CUDA_MPS_PIPE_DIRECTORY"]
    return Path(pipe).parent.name


def test_after_a_fault_alone_its_job_runs_apart_from_other_users_for_a_while(tmp_path: Path) -> None:
    hooks = Hooks(tmp_path, partition='mps_server = "gpu"')
    hooks.run("prolog", 6)
    assert served_by(hooks, 6) == "all"
    now_s = SystemClock().now_s()
    fault = Incident(kind="fault", gpu="GPU-0", first_s=now_s, last_s=now_s, culprit=6, culprit_user_id=0)
    write_incidents(tmp_path / "run", (fault,))
    for _ in range(2):
        hooks.run("epilog", 6, SLURM_JOB_EXIT_CODE="256")
    assert "its GPU fault ended its MPS server; until " in hooks.log("epilog")
    assert "jobs of its user and model share none with other users here" in hooks.log("epilog")
    hooks.run("prolog", 7)
    assert served_by(hooks, 7) == hooks.slurm(7)["SLURM_JOB_UID"]
    assert "no MPS server with other users until " in hooks.log("prolog")
    hooks.run(
        "prolog", 10, SLURM_JOB_COMMENT=comment_of(replace(SHARED, profile_key="cd34", memory_bytes=GIB))
    )
    assert served_by(hooks, 10) == "all", "another model"


def test_a_fault_that_cannot_be_recorded_is_said(tmp_path: Path) -> None:
    hooks = Hooks(tmp_path, partition='mps_server = "gpu"')
    hooks.run("prolog", 6)
    now_s = SystemClock().now_s()
    fault = Incident(kind="fault", gpu="GPU-0", first_s=now_s, last_s=now_s, culprit=6, culprit_user_id=0)
    write_incidents(tmp_path / "run", (fault,))
    (tmp_path / "run" / "mps-faults").write_text("no folder")
    hooks.run("epilog", 6, SLURM_JOB_EXIT_CODE="256")
    assert "its GPU fault ended its MPS server; no quarantine: " in hooks.log("epilog")
    assert hooks.reserved == []


@pytest.mark.parametrize("culprit", [8, 6])
def test_a_job_that_causes_no_fault_or_shares_no_server_is_under_no_quarantine(
    tmp_path: Path, culprit: int
) -> None:
    hooks = Hooks(tmp_path, partition="" if culprit == 6 else 'mps_server = "gpu"')
    hooks.run("prolog", 6)
    now_s = SystemClock().now_s()
    fault = Incident(kind="fault", gpu="GPU-0", first_s=now_s, last_s=now_s, culprit=culprit)
    write_incidents(tmp_path / "run", (fault,))
    hooks.run("epilog", 6, SLURM_JOB_EXIT_CODE="256")
    assert "MPS server" not in hooks.log("epilog")
    assert not (tmp_path / "run" / "mps-faults").exists()


@pytest.mark.parametrize("status", ["0", "15"], ids=["status 0", "cancelled"])
def test_a_job_whose_fault_the_monitor_recorded_is_apart_whatever_its_end(
    tmp_path: Path, status: str
) -> None:
    hooks = Hooks(tmp_path, partition='mps_server = "gpu"')
    hooks.run("prolog", 6)
    (allocation,) = (
        LedgerStore(tmp_path / "run", clock=SystemClock(), boot_id=boot_id()).read().ledger.allocations
    )
    caused = Caused(
        job_id=6, restart=0, profile_key=allocation.profile_key, time_s=SystemClock().now_s() - 600.0
    )
    user_id = int(hooks.slurm(6)["SLURM_JOB_UID"])
    add_fault(tmp_path / "run", user_id, caused, clock=SystemClock())
    hooks.run("epilog", 6, SLURM_JOB_EXIT_CODE=status)
    assert "its GPU fault ended its MPS server; until " in hooks.log("epilog")
    hooks.run("prolog", 7)
    assert served_by(hooks, 7) == str(user_id)


def test_a_late_epilog_leaves_the_run_alone_that_began_since(hooks: Hooks) -> None:
    """A node that was lost for Slurm comes back: its job runs there again, and slurmd still ends the run before."""
    run_folder, now_s = hooks.folder / "run", SystemClock().now_s()
    hooks.run("prolog")
    hooks.run("prolog", SLURM_JOB_RESTART_COUNT="1")
    usage = JobUsage(job_id=7, first_s=now_s, last_s=now_s, peak_bytes=GIB, mean_smact=0.5)
    write_job(run_folder, usage)
    place = run_folder / "mps" / "GPU-0" / "0"
    place.mkdir(parents=True)
    served = State(jobs={7: 4 * GIB}, users={7: 0})
    write_state(place, served)
    hooks.run("epilog", SLURM_JOB_EXIT_CODE="256", SLURM_JOB_RESTART_COUNT="0")
    assert hooks.reserved == [7]
    assert JobFile(run_folder, 7).variables()["RAD_GPUS"] == "GPU-0"
    assert read_job(run_folder, 7) == usage
    assert read_state(place) == served, "its clients would end with their server"
    assert "already runs again here" in hooks.log("epilog")
    hooks.run("epilog", SLURM_JOB_RESTART_COUNT="1")
    assert hooks.reserved == [] and read_job(run_folder, 7) is None and read_state(place).jobs == {}


def test_a_late_epilog_with_the_count_of_the_run_that_began_since_leaves_it_alone(hooks: Hooks) -> None:
    """A requeue raises the restart count before the Epilog of the run that it ends."""
    hooks.run("prolog", SLURM_JOB_RESTART_COUNT="1")
    program = hooks.folder / "slurmstepd"
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen(["slurmstepd: [7.batch]", "600"], executable=program) as step:
        try:
            hooks.run("epilog", SLURM_JOB_EXIT_CODE="256", SLURM_JOB_RESTART_COUNT="1")
            assert hooks.reserved == [7]
            assert JobFile(hooks.folder / "run", 7).variables()["RAD_GPUS"] == "GPU-0"
            assert EndedRuns(hooks.folder / "run").of_job(7) is None, "no task of it would start"
            assert "already runs again here" in hooks.log("epilog")
        finally:
            step.kill()
    hooks.run("epilog", SLURM_JOB_RESTART_COUNT="1")
    assert hooks.reserved == []


@pytest.mark.parametrize("comment", ["", "of the later job"])
def test_an_epilog_with_the_data_of_a_later_job_of_this_id_ends_the_run_all_the_same(
    hooks: Hooks, comment: str
) -> None:
    """slurmctld lost its state, gave the id again, and ends the run that it does not know: so seen on 22.05."""
    later = {"SLURM_JOB_GPUS": "", "SLURM_JOB_UID": "4711", "SLURM_JOB_COMMENT": comment}
    run_folder = hooks.folder / "run"
    hooks.run("prolog", SLURM_JOB_RESTART_COUNT="2")
    hooks.run("epilog", SLURM_JOB_EXIT_CODE="256", **later)
    assert hooks.reserved == [] and not JobFile(run_folder, 7).exists()
    assert EndedRuns(run_folder).of_job(7) == EndedRun(partition="gpu"), "its next run might start anywhere"
    assert "oom" not in hooks.log("epilog") and "again" not in hooks.log("epilog"), "it judges another job"
    with pytest.raises(CommandError) as refusal:
        hooks.run("prolog.task_prolog")
    assert refusal.value.returncode == 1
    hooks.run("prolog")
    assert "RAD_GPUS=GPU-" in hooks.run("prolog.task_prolog")


def test_an_epilog_with_the_data_of_a_later_job_leaves_a_run_with_a_slurmstepd_alone(hooks: Hooks) -> None:
    hooks.run("prolog")
    program = hooks.folder / "slurmstepd"
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen(["slurmstepd: [7.batch]", "600"], executable=program) as step:
        try:
            hooks.run("epilog", SLURM_JOB_GPUS="")
            assert hooks.reserved == [7] and JobFile(hooks.folder / "run", 7).exists()
            assert EndedRuns(hooks.folder / "run").of_job(7) is None, "no task of it would start"
        finally:
            step.kill()


def test_a_job_keeps_nothing_of_the_job_that_submitted_it(hooks: Hooks) -> None:
    """With a pipe and a cap of another GPU's daemon, a GPU of its own would not be found."""
    left = {
        "RAD_JOB": "6",
        "RAD_ESTIMATE_MIB": "9",
        "CUDA_MPS_PIPE_DIRECTORY": str(hooks.folder / "run" / "mps" / "GPU-1" / "1000" / "pipe"),
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=9M",
    }
    gone = {f"unset {name}" for name in left}
    assert gone <= set(hooks.run("prolog.task_prolog", **left).splitlines()), "a job that we do not place"
    hooks.run("prolog", SLURM_JOB_COMMENT=hooks.whole)
    lines = hooks.run("prolog.task_prolog", **left).splitlines()
    assert gone <= set(lines)
    assert lines.index("unset RAD_JOB") < lines.index("export RAD_JOB=7"), "Slurm goes through them in order"
    own = left | {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mine"}
    assert not [line for line in hooks.run("prolog.task_prolog", **own).splitlines() if "CUDA_MPS" in line]
    assert "unset" not in hooks.run("prolog.task_prolog", **(left | {"RAD_JOB": "7"}))


def test_a_job_that_shares_two_gpus_from_prolog_to_epilog(hooks: Hooks) -> None:
    """Its script gets the user's one task and all shards, each of two tasks of a step one GPU, and both go back."""
    pair = replace(SHARED, gpus=2, shards=8, by_task=RequestedTasks())
    given = {"SLURM_JOB_GPUS": "0,1", "CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_COMMENT": comment_of(pair)}
    hooks.run("prolog", job_id=6)
    hooks.run("prolog", **given)
    store = LedgerStore(hooks.folder / "run", clock=SystemClock(), boot_id=boot_id())
    allocation = store.read().ledger.of_job(7)
    assert allocation is not None and (
        allocation.kind,
        len(set(allocation.gpus)),
        allocation.booked_bytes,
    ) == ("shared", 2, 4 * GIB)
    reported = {"SLURM_NTASKS": "2", "SLURM_SHARDS_ON_NODE": "8", "SLURM_TRES_PER_TASK": "gres/shard:4"}
    script = hooks.run("prolog.task_prolog", **given, **reported).splitlines()
    assert {
        "export SLURM_NTASKS=1",
        "export SLURM_STEP_GRES=gres/shard:8",
        "unset SLURM_TRES_PER_TASK",
    } <= set(script)
    numbers = [gpu.removeprefix("GPU-") for gpu in allocation.gpus]
    assert f"export CUDA_VISIBLE_DEVICES={','.join(numbers)}" in script
    step = {**given, "CUDA_VISIBLE_DEVICES": "1", "SLURM_STEP_ID": "0"}
    task = hooks.run("prolog.task_prolog", **step).splitlines()
    assert f"export CUDA_VISIBLE_DEVICES={numbers[allocation.gpu_indices.index(1)]}" in task
    assert not [line for line in task if "SLURM_NTASKS" in line]
    hooks.run("epilog", **given)
    assert hooks.reserved == [6]


def test_a_job_without_gpus_costs_nothing(hooks: Hooks) -> None:
    for module in ("prolog", "prolog.task_prolog", "epilog"):
        assert hooks.run(module, SLURM_JOB_GPUS="", config="/nowhere/rad.toml") == ""
    assert not (hooks.folder / "run").exists()


def test_a_job_of_unknown_need_gets_a_gpu_of_its_own_when_slurm_is_silent(hooks: Hooks) -> None:
    hooks.run("prolog", SLURM_JOB_COMMENT="rad2:shared:gpus=1:mem=1:try=0:retry=1:ask=1:0123456789abcdef")
    assert JobFile(hooks.folder / "run", 7).variables()["RAD_KIND"] == "whole"


def test_a_job_that_must_not_start_is_refused_by_its_task_prolog(hooks: Hooks) -> None:
    for number in (1, 2):
        hooks.run("prolog", number, SLURM_JOB_COMMENT=hooks.whole)
    hooks.run("prolog", 3)
    assert hooks.reserved == [1, 2]
    assert "not requeued: of the 2 GPUs that it may have none is shared or idle" in hooks.log("prolog")
    with pytest.raises(CommandError) as refusal:
        hooks.run("prolog.task_prolog", 3)
    assert refusal.value.returncode == 1
    hooks.run("epilog", 3, SLURM_JOB_EXIT_CODE="256")
    assert "oom" not in hooks.log("epilog"), "a refused job is not judged"


def test_a_failed_job_is_judged_by_its_own_output(hooks: Hooks) -> None:
    hooks.run("prolog")
    (hooks.folder / "slurm-7.out").write_text(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    )
    hooks.run("epilog", SLURM_JOB_EXIT_CODE="256")
    assert "gpu-oom: pytorch" in hooks.log("epilog")
    assert hooks.reserved == []


@pytest.mark.parametrize("switch", ['mode = "off"', "[features]\nplacement = false"])
def test_what_is_switched_off_does_nothing(tmp_path: Path, switch: str) -> None:
    hooks = Hooks(tmp_path, top=switch)
    hooks.run("prolog")
    assert hooks.reserved == [] and not (tmp_path / "run" / "ledger").exists()
    assert hooks.run("prolog.task_prolog") == ""
    assert hooks.run("prolog.task_prolog", SLURM_MEM_PER_GPU="") == "unset SLURM_MEM_PER_GPU\n", (
        "it was changed when it was submitted"
    )


@pytest.mark.parametrize("off", [None, "history", "recovery"])
def test_a_switch_turns_off_its_own_part_of_the_epilog_and_no_other(tmp_path: Path, off: str | None) -> None:
    hooks = Hooks(tmp_path, top="" if off is None else f"[features]\n{off} = false")
    hooks.run("prolog")
    (tmp_path / "slurm-7.out").write_text("torch.OutOfMemoryError: CUDA out of memory.")
    hooks.run("epilog", SLURM_JOB_EXIT_CODE="256")
    assert "gpu-oom: pytorch" in hooks.log("epilog") and hooks.reserved == []
    assert (tmp_path / "state" / "peaks.jsonl").exists() == (off != "history")
    assert ("not reported: " in hooks.log("epilog")) == (off != "recovery"), (
        "Slurm, which is away, was queried"
    )


def test_observe_says_what_it_would_do(tmp_path: Path) -> None:
    hooks = Hooks(tmp_path, top='mode = "observe"')
    hooks.run("prolog")
    assert "would place: booking shared: GPU-0" in hooks.log("prolog")
    assert hooks.run("prolog.task_prolog") == ""


@pytest.mark.parametrize("broken", ["mode = 7", "", None, "folder", "fifo"])
def test_a_broken_rad_toml_neither_uncaps_a_job_nor_keeps_its_allocation(
    hooks: Hooks, broken: str | None
) -> None:
    hooks.run("prolog", 6)
    path = hooks.folder / "rad.toml"
    path.unlink()
    if broken == "folder":
        path.mkdir()
    elif broken == "fifo":
        os.mkfifo(path)
    elif broken is not None:
        path.write_text(broken)
    hooks.run("prolog", 7)
    assert hooks.reserved == [6, 7]
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=4096M" in hooks.run("prolog.task_prolog", 7)
    for job in (6, 7):
        hooks.run("epilog", job, SLURM_JOB_EXIT_CODE="0")
    assert hooks.reserved == []
    assert hooks.log("prolog").count("last good settings: ") == 1
    assert hooks.log("epilog").count("last good settings: ") == 2
    if broken == "mode = 7":
        line = f"last good settings: {path}:1: mode is 7; it must be one of enforce, observe, off; the last good copy"
        assert line in hooks.log("prolog") and line in hooks.log("epilog")


def test_a_job_gives_back_what_it_holds_although_all_was_switched_off_meanwhile(hooks: Hooks) -> None:
    hooks.run("prolog")
    assert hooks.reserved == [7]
    path = hooks.folder / "rad.toml"
    path.write_text('mode = "off"\n' + path.read_text())
    hooks.run("epilog", SLURM_JOB_EXIT_CODE="0")
    assert hooks.reserved == []


def kind_of(exports: str) -> str:
    """Return what a job may use by what its TaskProlog prints: "" where it is left as Slurm started it."""
    names = dict(line.removeprefix("export ").split("=", 1) for line in exports.splitlines())
    assert not names or "CUDA_VISIBLE_DEVICES" in names
    return names.get("RAD_KIND", "")


def test_every_line_of_the_text_log_is_a_view_of_an_event(hooks: Hooks) -> None:
    hooks.run("prolog")
    (hooks.folder / "slurm-7.out").write_text("\x1b[31mCUDA out of memory.\x1b]0;title\x07 \u202eforged\n")
    hooks.run("epilog", SLURM_JOB_EXIT_CODE="256")
    log = hooks.folder / "log"
    entries = [from_line(line) for line in (log / "events.jsonl").read_bytes().splitlines()]
    assert [entry and (entry.hook, entry.job_id, entry.event.kind) for entry in entries] == [
        ("prolog", 7, EventKind.PLACED),
        ("prolog", 7, EventKind.END),
        ("epilog", 7, EventKind.GPU_OOM),
        ("epilog", 7, EventKind.NOT_REPORTED),
        ("epilog", 7, EventKind.END),
    ]
    views = [as_text(entry) for entry in entries if entry and entry.event.kind != EventKind.END]
    assert views == (hooks.log("prolog") + hooks.log("epilog")).splitlines()
    written = hooks.log("epilog") + (log / "events.jsonl").read_text()
    assert written.replace("\n", "").isprintable(), "no escape sequence of a job reaches an admin's terminal"
    assert {path.stat().st_mode & 0o777 for path in log.iterdir()} == {0o640}


def test_a_full_disk_lets_no_job_run_without_its_allocation(tmp_path: Path) -> None:
    with small_disk(tmp_path / "run", "size=2m,nr_inodes=200") as run:
        hooks = Hooks(tmp_path)
        hooks.run("prolog", 1)
        fill(run)
        for job_id in (2, 3, 4):
            hooks.run("prolog", job_id)
            assert JobFile(run, job_id).variables()["RAD_BOOKED_MIB"] == "4096"
            assert "RAD_GPUS=GPU-" in hooks.run("prolog.task_prolog", job_id)
        assert hooks.reserved == [1, 2, 3, 4]
        for job_id in (1, 2, 3, 4):
            hooks.run("epilog", job_id, SLURM_JOB_EXIT_CODE="0")
        assert hooks.reserved == []
        assert os.listdir(run / "placed") == []
        assert "unchanged" not in hooks.log("prolog")


FAULTS = {
    "no configuration": (lambda folder: (folder / "rad.toml").unlink(), ""),
    "wrong configuration": (lambda folder: (folder / "rad.toml").write_text("mode = 7"), ""),
    "no key": (lambda folder: (folder / "key").unlink(), "whole"),
    "no GPUs": (lambda folder: (folder / "gpus" / "gpus.json").unlink(), ""),
    "a ledger that is a folder": (lambda folder: (folder / "run" / "ledger").mkdir(parents=True), ""),
    "a run folder that is a file": (lambda folder: (folder / "run").write_text(""), ""),
    "a log folder that is a file": (lambda folder: (folder / "log").write_text(""), "shared"),
}
"""What is broken, and what a job that booked a share may then use: "" is what Slurm gave it."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_rads_neither_fails_a_hook_nor_holds_anything(hooks: Hooks, fault: str) -> None:
    breaks, kind = FAULTS[fault]
    breaks(hooks.folder)
    hooks.run("prolog")
    assert hooks.reserved == ([7] if kind else [])
    assert kind_of(hooks.run("prolog.task_prolog")) == kind
    hooks.run("epilog", SLURM_JOB_EXIT_CODE="256")
    assert hooks.reserved == []


@pytest.mark.parametrize(
    ("env", "kind"),
    [
        ({"SLURM_JOB_ID": "x"}, ""),
        ({"SLURM_JOB_UID": ""}, ""),
        ({"SLURM_JOB_GPUS": "a-b"}, ""),
        ({"SLURM_JOB_RESTART_COUNT": "-"}, ""),
        ({"SLURM_JOB_EXIT_CODE": "?"}, ""),
        ({"SLURM_JOB_COMMENT": "rad2:" + "9" * 5000}, "whole"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else value,
)
def test_an_environment_that_makes_no_sense_leaves_the_job_as_it_is(
    hooks: Hooks, env: dict[str, str], kind: str
) -> None:
    hooks.run("prolog", **env)
    assert hooks.reserved == ([7] if kind else [])
    assert kind_of(hooks.run("prolog.task_prolog", **env)) == kind
    hooks.run("epilog", **env)
    assert hooks.reserved == []


def test_an_epilog_that_understands_nothing_leaves_other_jobs_allocations(hooks: Hooks) -> None:
    hooks.run("prolog", 7)
    hooks.run("prolog", 8)
    hooks.run("epilog", 7, SLURM_JOB_RESTART_COUNT="-")
    assert 8 in hooks.reserved


def script_of(hooks: Hooks, name: str, *, python: str) -> Path:
    """Return a hook's script as slurmd starts it, with another interpreter."""
    values = {"python": python, "config": f"{hooks.folder}/rad.toml", "run": f"{hooks.folder}/run"}
    script = hooks.folder / name
    script.write_text(render((templates_folder() / name).read_text(), values))
    return script


def program(folder: Path, text: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    "broken", ["kill -9 $$", "exit 1", "exit 2", "echo 'export CUDA_VISIBLE_'; exit 3", None]
)
def test_a_task_knows_its_gpu_although_its_task_prolog_does_not_end_its_work(
    hooks: Hooks, broken: str | None
) -> None:
    """Crowded out, killed, or started while a package was being replaced: the task would train on another's GPU."""
    hooks.run("prolog")
    whole = script_of(hooks, "task_prolog.sh", python=sys.executable)
    lines = run(["/bin/sh", str(whole)], timeout_s=20, env=hooks.slurm(7)).splitlines(keepends=True)
    reported = "".join(
        line for line in lines if not any(f" {name}=" in line for name in (*GROWING, SET))
    )  # its GPU is the point
    python = "/nowhere/python" if broken is None else program(hooks.folder, broken)
    script = script_of(hooks, "task_prolog.sh", python=python)
    assert run(["/bin/sh", str(script)], timeout_s=20, env=hooks.slurm(7)) == reported
    assert "export RAD_GPUS=GPU-" in reported and "export CUDA_VISIBLE_DEVICES=" in reported
    JobFile(hooks.folder / "run", 8).refuse("it waits", boot_id=boot_id(), now_s=0.0)
    with pytest.raises(CommandError) as refusal:
        run(["/bin/sh", "-c", f"/bin/sh {script} 2>/dev/null"], timeout_s=20, env=hooks.slurm(8))
    assert "print RAD: the job did not start here: it waits" in refusal.value.output
    assert "export" not in run(["/bin/sh", str(script)], timeout_s=20, env=hooks.slurm(9))


def test_a_prolog_that_is_killed_twice_leaves_word_for_the_jobs_tasks(hooks: Hooks) -> None:
    """Slurm does not answer here, so the tasks start all the same: a fault of RAD's never loses a job."""
    python = program(hooks.folder, f"echo x >>{hooks.folder}/tries\nkill -9 $$")
    script = script_of(hooks, "prolog.sh", python=python)
    for job_id, gpus in ((7, "0"), (8, "")):
        run(["/bin/sh", str(script)], timeout_s=20, env={**hooks.slurm(job_id), "SLURM_JOB_GPUS": gpus})
    assert (hooks.folder / "tries").read_text().count("x") == 4
    (word,) = (hooks.folder / "run" / "placed").iterdir()
    assert JobFile(hooks.folder / "run", 7).unplaced() and word.name == "7"
    assert word.stat().st_mode & 0o004, "tasks read it"
    found = JobFile(hooks.folder / "run", 7).read(boot_id=boot_id())
    assert found.allocation is None and found.created_s == pytest.approx(SystemClock().monotonic_s(), abs=30)
    assert hooks.run("prolog.task_prolog", SLURM_RESTART_COUNT="3") == ""
    hooks.run("prolog")
    assert hooks.reserved == [7] and not JobFile(hooks.folder / "run", 7).unplaced()
    run(["/bin/sh", str(script)], timeout_s=20, env={**hooks.slurm(7), "SLURM_JOB_GPUS": "0"})
    assert JobFile(hooks.folder / "run", 7).variables(), "what a killed Prolog had placed stays placed"


@pytest.mark.parametrize("partition", ["gpu", "elsewhere"])
@pytest.mark.parametrize("gpus", ["0", ""], ids=["with a GPU", "without"])
def test_each_prolog_lets_the_tasks_of_its_run_start(hooks: Hooks, partition: str, gpus: str) -> None:
    """Also of a job that RAD does not place: the run before ended in a partition where it does."""
    ended = EndedRuns(hooks.folder / "run")
    hooks.run("prolog")
    hooks.run("epilog", SLURM_JOB_EXIT_CODE="0")
    assert ended.of_job(7) == EndedRun(partition="gpu")
    hooks.run("prolog", SLURM_JOB_PARTITION=partition, SLURM_JOB_GPUS=gpus)
    assert ended.of_job(7) is None
