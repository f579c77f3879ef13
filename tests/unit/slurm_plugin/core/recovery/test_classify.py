from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from slurm_plugin.core.config.load import GpuType, PartitionConfig
from slurm_plugin.core.records.node import Allocation, Diagnosis, Outcome
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.core.recovery.classify import Ending, as_allocated, classify, next_attempt, unsigned
from slurm_plugin.core.recovery.oom_patterns import load_patterns
from slurm_plugin.core.units import GIB, MIB

PATTERNS = load_patterns()
FAILED = Ending(exit_status=256, peak_bytes=10 * GIB, limit_bytes=10 * GIB)
PARTITION = PartitionConfig(collocate=True, shards_per_gpu=40)
BOOKING = Booking(
    kind="shared", memory_bytes=10 * GIB, estimate_bytes=9 * GIB, profile_key="ab12", basis="estimate"
)
OOM = Outcome(
    kind="gpu-oom", pattern="pytorch", attempted_bytes=2 * GIB, peak_bytes=9 * GIB, corroborated=True
)

# Each line as its framework prints it; the shape is pinned by the named source file.
GPU_LINES = {
    "torch >= 2.5": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity",
        "pytorch",
        2560 * MIB,
    ),
    "torch 1.x": (
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.80 GiB)",
        "pytorch",
        20 * MIB,
    ),
    "torch bare": ("torch.cuda.OutOfMemoryError", "pytorch", None),
    "tensorflow op": (
        "Resource exhausted: OOM when allocating tensor with shape[64,512] and type float on "
        "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
        "tensorflow",
        None,
    ),
    "tensorflow bfc": (
        "W bfc_allocator.cc:497] Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.50GiB (rounded to 7)",
        "tensorflow",
        1536 * MIB,
    ),
    "jax": (
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4294967296 bytes.",
        "jax",
        4 * GIB,
    ),
    "jax bfc": ("RESOURCE_EXHAUSTED: Out of memory allocating 1073741824 bytes.", "jax", GIB),
    "cupy": (
        "OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes (allocated so far: 512 bytes).",
        "cupy",
        8 * GIB,
    ),
    "cublas": (
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cublas",
        None,
    ),
    "cudnn": ("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "cudnn", None),
    "driver": ("failed to allocate 2.2G: CUDA_ERROR_OUT_OF_MEMORY: out of memory", "cuda", None),
    "runtime": ("CUDA error: out of memory", "cuda", None),
}


@pytest.mark.parametrize("name", GPU_LINES)
def test_each_framework_is_understood(name: str) -> None:
    line, pattern, attempted = GPU_LINES[name]
    outcome = classify(FAILED, [f"epoch 3\n{line}\nsrun: error: task 0 exited\n"], PATTERNS)
    assert (outcome.kind, outcome.pattern, outcome.attempted_bytes) == ("gpu-oom", pattern, attempted)
    assert outcome.evidence is not None and outcome.evidence in line


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=12.batch.",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=12.batch.",
        "RuntimeError: [enforce fail at alloc_cpu.cpp] . DefaultCPUAllocator: can't allocate memory",
        "MemoryError",
        "terminate called after throwing an instance of 'std::bad_alloc'",
    ],
)
def test_host_memory_is_distinguished(line: str) -> None:
    assert classify(FAILED, [line], PATTERNS).kind == "host-oom"


def test_whichever_memory_ran_out_last_ended_the_job() -> None:
    """It halved its batch after the GPU refused it, and read too much of its data; and the other way round."""
    gpu, host = (
        "CUDA out of memory. Tried to allocate 2.00 GiB.\n",
        "Detected 1 oom-kill event(s) in StepId=7.batch\n",
    )
    assert classify(FAILED, [gpu + "batch 32\n" + host], PATTERNS).kind == "host-oom"
    assert classify(FAILED, [gpu, host], PATTERNS).kind == "host-oom"
    assert classify(FAILED, ["Cannot allocate memory\n" + gpu], PATTERNS).kind == "gpu-oom"


def test_a_job_that_was_killed_for_host_memory_is_no_cancelled_one() -> None:
    killed = replace(FAILED, exit_status=9)
    assert classify(killed, ["Detected 1 oom-kill event"], PATTERNS).kind == "host-oom"
    assert classify(killed, ["epoch 3"], PATTERNS).kind == "cancelled"


def test_success_is_success_whatever_was_printed() -> None:
    assert classify(replace(FAILED, exit_status=0), ["CUDA out of memory"], PATTERNS).kind == "ok"


def test_a_failed_step_counts_although_the_script_went_on() -> None:
    ending = Ending(exit_status=0, derived_exit=256)
    assert classify(ending, ["CUDA out of memory."], PATTERNS).kind == "gpu-oom"


@pytest.mark.parametrize("signal", [2, 9, 15])
def test_a_cancelled_job_is_not_run_again_for_words_it_printed_before(signal: int) -> None:
    outcome = classify(replace(FAILED, exit_status=signal), ["CUDA out of memory."], PATTERNS)
    assert outcome.kind == "cancelled"
    assert next_attempt(BOOKING, outcome, PARTITION) is None


def test_an_aborted_program_may_have_run_out_of_memory() -> None:
    assert classify(replace(FAILED, exit_status=6), ["CUDA_ERROR_OUT_OF_MEMORY"], PATTERNS).kind == "gpu-oom"


def test_other_failures_are_failures() -> None:
    assert classify(FAILED, ["ValueError: memory", "out of luck"], PATTERNS).kind == "failed"
    assert classify(FAILED, [], PATTERNS).kind == "failed"


@pytest.mark.parametrize(("peak", "limit"), [(None, 10 * GIB), (7 * GIB, 10 * GIB), (10 * GIB, None)])
def test_words_alone_corroborate_nothing(peak: int | None, limit: int | None) -> None:
    ending = replace(FAILED, peak_bytes=peak, limit_bytes=limit)
    outcome = classify(ending, ["CUDA out of memory."], PATTERNS)
    assert outcome.kind == "gpu-oom" and not outcome.corroborated
    recovery = next_attempt(BOOKING, outcome, PARTITION)
    assert recovery is not None and not recovery.boost_priority


def test_a_peak_near_the_limit_corroborates() -> None:
    outcome = classify(replace(FAILED, peak_bytes=8 * GIB), ["CUDA out of memory."], PATTERNS)
    assert outcome.corroborated


def test_a_rerun_has_a_gpu_of_its_own_and_remembers_its_tries() -> None:
    recovery = next_attempt(BOOKING, OOM, PARTITION)
    assert recovery is not None and recovery.boost_priority
    assert recovery.booking == replace(BOOKING, kind="whole", memory_bytes=None, recoveries=1)


def test_a_size_that_the_user_chose_buys_no_priority() -> None:
    """Found by a hostile user: `memory=1M`, hold 900 MiB, print the words, exit 1."""
    stated = Booking(kind="shared", memory_bytes=GIB, estimate_bytes=MIB, basis="requested")
    outcome = classify(
        replace(FAILED, peak_bytes=900 * MIB, limit_bytes=GIB), ["CUDA out of memory."], PATTERNS
    )
    recovery = next_attempt(stated, outcome, PARTITION)
    assert outcome.corroborated and recovery is not None and not recovery.boost_priority


def test_a_run_that_never_came_near_our_estimate_buys_no_priority() -> None:
    recovery = next_attempt(BOOKING, replace(OOM, peak_bytes=2 * GIB), PARTITION)
    assert recovery is not None and not recovery.boost_priority


def test_a_job_without_an_estimate_buys_no_priority() -> None:
    recovery = next_attempt(replace(BOOKING, estimate_bytes=None), OOM, PARTITION)
    assert recovery is not None and not recovery.boost_priority


def test_an_end_of_unknown_status_is_not_taken_for_a_cancellation() -> None:
    unknown = replace(FAILED, exit_status=None, derived_exit=1)
    assert classify(unknown, ["CUDA out of memory."], PATTERNS).kind == "gpu-oom"


def test_a_victim_runs_again_as_it_was_and_nothing_is_counted_against_it() -> None:
    diagnosis = Diagnosis(kind="victim", culprit=77, culprit_user_id=1001, detail="job 77 took 40 GiB")
    ending = replace(FAILED, user_id=1000, diagnosis=diagnosis)
    outcome = classify(ending, ["CUDA out of memory."], PATTERNS)
    assert (outcome.kind, outcome.culprit, outcome.evidence) == ("victim", 77, "job 77 took 40 GiB")
    whole = replace(BOOKING, kind="whole", memory_bytes=None, recoveries=2)
    for booking in (BOOKING, whole):
        recovery = next_attempt(booking, outcome, PARTITION)
        assert recovery is not None and recovery.boost_priority and recovery.booking == booking
        assert "77" in recovery.reason


@pytest.mark.parametrize("rerun", [True, False])
def test_an_idle_job_runs_again_as_it_was_where_the_site_says_so(rerun: bool) -> None:
    diagnosis = Diagnosis(
        kind="idle", culprit=7, culprit_user_id=1000, rerun=rerun, detail="computed nothing"
    )
    outcome = classify(replace(FAILED, user_id=1000, diagnosis=diagnosis), [], PATTERNS)
    assert (outcome.kind, outcome.rerun, outcome.evidence) == ("idle", rerun, "computed nothing")
    recovery = next_attempt(BOOKING, outcome, PARTITION)
    assert (recovery is not None) == rerun
    if recovery is not None:
        assert recovery.booking == BOOKING and not recovery.boost_priority


def test_a_victim_of_ones_own_job_is_lent_no_priority() -> None:
    diagnosis = Diagnosis(kind="victim", culprit=77, culprit_user_id=1000)
    outcome = classify(replace(FAILED, user_id=1000, diagnosis=diagnosis), [], PATTERNS)
    recovery = next_attempt(BOOKING, outcome, PARTITION)
    assert recovery is not None and not recovery.boost_priority


def test_a_cancelled_victim_is_cancelled_and_a_victim_that_ended_well_is_ok() -> None:
    diagnosis = Diagnosis(kind="victim", culprit=77, culprit_user_id=1001)
    assert classify(replace(FAILED, exit_status=15, diagnosis=diagnosis), [], PATTERNS).kind == "cancelled"
    assert classify(replace(FAILED, exit_status=0, diagnosis=diagnosis), [], PATTERNS).kind == "ok"


@pytest.mark.parametrize("rerun", [True, False])
def test_a_job_that_used_more_than_its_booking_gets_no_priority_for_it(rerun: bool) -> None:
    diagnosis = Diagnosis(kind="overrun", rerun=rerun, detail="used 40 GiB of 10")
    outcome = classify(replace(FAILED, exit_status=9, diagnosis=diagnosis), ["CUDA out of memory."], PATTERNS)
    recovery = next_attempt(BOOKING, outcome, PARTITION)
    assert outcome.kind == "overrun" and (recovery is not None) == rerun
    assert recovery is None or (not recovery.boost_priority and recovery.booking.recoveries == 1)
    others = next_attempt(BOOKING, replace(outcome, peak_bytes=9 * GIB, corroborated=True), PARTITION)
    assert others is None or not others.boost_priority, "another job was at fault too"


@pytest.mark.parametrize(
    ("booking", "outcome", "partition"),
    [
        (BOOKING, Outcome(kind="failed"), PARTITION),
        (BOOKING, Outcome(kind="host-oom"), PARTITION),
        (BOOKING, OOM, replace(PARTITION, recovery="off")),
        (replace(BOOKING, retry=False), OOM, PARTITION),
        (replace(BOOKING, retry=False), Outcome(kind="victim"), PARTITION),
        (replace(BOOKING, retry=False), Outcome(kind="overrun", rerun=True), PARTITION),
        (BOOKING, Outcome(kind="victim"), replace(PARTITION, recovery="off")),
        (replace(BOOKING, recoveries=2), OOM, PARTITION),
        (replace(BOOKING, kind="whole", memory_bytes=None), OOM, PARTITION),
        (BOOKING, OOM, replace(PARTITION, max_recoveries=0)),
    ],
)
def test_when_there_is_no_rerun(booking: Booking, outcome: Outcome, partition: PartitionConfig) -> None:
    assert next_attempt(booking, outcome, partition) is None


def test_escalation_shares_once_more_and_then_takes_the_gpu() -> None:
    escalate = replace(PARTITION, recovery="escalate")
    first = next_attempt(BOOKING, OOM, escalate)
    assert first is not None
    assert (first.booking.kind, first.booking.memory_bytes) == (
        "shared",
        17 * GIB,
    )  # 10 booked + 2 requested + 5
    second = next_attempt(first.booking, OOM, escalate)
    assert second is not None and (second.booking.kind, second.booking.recoveries) == ("whole", 2)
    assert next_attempt(second.booking, OOM, escalate) is None


@pytest.mark.parametrize(
    "outcome",
    [
        replace(
            OOM, attempted_bytes=None, peak_bytes=6 * GIB
        ),  # refused what is unknown to RAD, far below its limit
        replace(OOM, attempted_bytes=None, peak_bytes=None),
        replace(OOM, attempted_bytes=25 * GIB),  # 10 + 25 + 5 are all shards
        replace(OOM, attempted_bytes=30 * GIB),
    ],
)
def test_escalation_needs_a_size_that_leaves_space_for_others(outcome: Outcome) -> None:
    recovery = next_attempt(BOOKING, outcome, replace(PARTITION, recovery="escalate"))
    assert recovery is not None and recovery.booking.kind == "whole"


def test_a_surprise_that_was_stopped_below_its_cap_books_the_cap() -> None:
    booking = replace(BOOKING, cap_bytes=14 * GIB)
    stopped = Outcome(kind="overrun", rerun=True, peak_bytes=12 * GIB)
    recovery = next_attempt(booking, stopped, replace(PARTITION, recovery="escalate"))
    assert recovery is not None
    assert (recovery.booking.kind, recovery.booking.memory_bytes) == ("shared", 14 * GIB)
    assert recovery.booking.cap_bytes is None
    beyond = next_attempt(
        booking, replace(stopped, peak_bytes=15 * GIB), replace(PARTITION, recovery="escalate")
    )
    assert beyond is not None and beyond.booking.kind == "whole", "a job passes its limit only on purpose"


def test_a_rerun_requests_what_was_seen_and_what_was_refused() -> None:
    booking = replace(BOOKING, cap_bytes=14 * GIB)
    surprised = replace(OOM, peak_bytes=13 * GIB)
    recovery = next_attempt(booking, surprised, replace(PARTITION, recovery="escalate"))
    assert recovery is not None and recovery.booking.memory_bytes == 20 * GIB  # 13 seen + 2 requested + 5
    unseen = next_attempt(booking, replace(OOM, peak_bytes=None), replace(PARTITION, recovery="escalate"))
    assert BOOKING.memory_bytes is not None and unseen is not None
    assert unseen.booking.memory_bytes == BOOKING.memory_bytes + 7 * GIB, "without a monitor: what it booked"
    untold = replace(OOM, attempted_bytes=None, peak_bytes=10 * GIB)
    whole = next_attempt(booking, untold, replace(PARTITION, recovery="escalate"))
    assert whole is not None and whole.booking.kind == "whole", (
        "it was refused an unknown size, below its limit"
    )


def test_what_cuda_itself_refused_near_the_limit_is_taken_to_be_small() -> None:
    """On an H100 two Inceptions that had 3.8 and 4.0 of 4 GiB got whole GPUs for 20 s each; they take 5.1."""
    untold = replace(OOM, pattern="cuda", attempted_bytes=None, peak_bytes=9 * GIB)
    recovery = next_attempt(BOOKING, untold, replace(PARTITION, recovery="escalate"))
    assert recovery is not None
    assert (recovery.booking.kind, recovery.booking.memory_bytes) == ("shared", 15 * GIB)
    again = next_attempt(recovery.booking, untold, replace(PARTITION, recovery="escalate"))
    assert again is not None and again.booking.kind == "whole"
    unlimited = next_attempt(
        replace(BOOKING, memory_bytes=None), untold, replace(PARTITION, recovery="escalate")
    )
    assert unlimited is not None and unlimited.booking.kind == "whole", (
        "it is not known how near it was to which limit"
    )


@pytest.mark.parametrize("recovers", ["exclusive", "escalate"])
def test_a_whole_gpu_that_was_too_small_is_followed_by_a_larger_one_where_there_is_one(
    recovers: Literal["exclusive", "escalate"],
) -> None:
    """A whole-GPU job keeps a whole GPU: a part of a larger one would have neighbours."""
    sizes = {"a100": GpuType(shards_per_gpu=39), "h200": GpuType(shards_per_gpu=138)}
    mixed = PartitionConfig(collocate=True, gpus=sizes, recovery=recovers)
    whole = Booking(kind="whole")
    full = Outcome(kind="gpu-oom", pattern="pytorch", attempted_bytes=2 * GIB, peak_bytes=38 * GIB)
    following = next_attempt(whole, full, mixed)
    assert following is not None and following.booking.kind == "whole"
    assert next_attempt(whole, full, mixed.of_type("h200")) is None, "40 GiB fit there: it needed more"
    assert next_attempt(whole, replace(full, attempted_bytes=None), mixed) is None, (
        "nothing says that it does"
    )
    assert next_attempt(replace(whole, gpus=2), full, mixed) is None
    assert next_attempt(whole, replace(full, peak_bytes=138 * GIB), mixed) is None, "no GPU is larger"


@pytest.mark.parametrize(
    ("kind", "size", "cap"),
    [("whole", None, None), ("shared", 4 * GIB, 9 * GIB)],
)
def test_what_a_job_used_counts_and_not_what_was_signed(kind: str, size: int | None, cap: int | None) -> None:
    signed = Booking(kind="shared", memory_bytes=30 * GIB, cap_bytes=31 * GIB, recoveries=1)
    allocation = Allocation(
        job_id=1,
        user_id=1000,
        kind=kind,  # type: ignore[arg-type]
        gpus=("GPU-0",),
        gpu_indices=(0,),
        booked_bytes=4 * GIB,
        cap_bytes=9 * GIB,
        created_s=0.0,
    )
    assert as_allocated(signed, allocation) == replace(signed, kind=kind, memory_bytes=size, cap_bytes=cap)  # type: ignore[arg-type]
    assert as_allocated(signed, None) == signed


def test_a_job_that_ended_with_its_server_is_not_said_to_be_anothers_victim() -> None:
    booking = Booking(kind="shared", memory_bytes=4 * GIB)
    found = next_attempt(booking, Outcome(kind="victim", server_ends=1), PartitionConfig(collocate=True))
    assert found is not None and (found.booking, found.boost_priority) == (booking, False)
    assert found.reason == "failed with its MPS server, requeued"


@pytest.mark.parametrize(
    ("outcome", "again"),
    [
        (Outcome(kind="overrun", rerun=True, peak_bytes=6 * GIB), "whole"),
        (Outcome(kind="overrun", rerun=False), None),
        (Outcome(kind="victim", culprit=8), "shared"),
        (Outcome(kind="victim"), "shared"),
        (Outcome(kind="gpu-oom", pattern="pytorch"), None),
        (Outcome(kind="failed"), None),
    ],
    ids=["stopped", "ended for good", "hurt", "hurt by a process of no job", "by itself", "failed"],
)
def test_a_job_without_a_booking_runs_again_where_our_guard_or_a_neighbour_ended_it(
    outcome: Outcome, again: str | None
) -> None:
    allocation = Allocation(
        job_id=1,
        user_id=1000,
        kind="shared",
        gpus=("GPU-0",),
        gpu_indices=(0,),
        booked_bytes=4 * GIB,
        created_s=0.0,
    )
    booking = unsigned(allocation, outcome)
    recovery = booking and next_attempt(booking, outcome, replace(PARTITION, recovery="exclusive"))
    assert (recovery and recovery.booking.kind) == again
    assert recovery is None or ("(job 8)" in recovery.reason) == (outcome.culprit == 8)
    assert unsigned(replace(allocation, managed=False), outcome) is None
    assert unsigned(None, outcome) is None


ENDED_BY_SLURM = "{} error: *** JOB 7 ON n0 CANCELLED AT 2026-11-22T22:46:41{} ***\nTerminated\n"


@pytest.mark.parametrize(
    "speaker", ["slurmstepd:", "slurmstepd-n0:", "[2026-11-22T22:46:41.990]"]
)  # the last: 26.05
@pytest.mark.parametrize("status", [0, 256])
@pytest.mark.parametrize("why", ["", " DUE TO PREEMPTION", " DUE TO TIME LIMIT", " DUE TO JOB REQUEUE"])
def test_a_job_ended_by_others_did_not_run_out_of_memory_whatever_its_trap_says(
    status: int, why: str, speaker: str
) -> None:
    ending = replace(FAILED, exit_status=status, job_id=7)
    tails = ["CUDA out of memory.\n" + ENDED_BY_SLURM.format(speaker, why)]
    assert classify(ending, tails, PATTERNS).kind == "cancelled"
    assert classify(replace(ending, job_id=8), tails, PATTERNS).kind != "cancelled", "another job's line"


def test_a_step_that_slurm_ends_because_a_task_ran_out_of_memory_is_no_cancelled_job() -> None:
    tails = ["CUDA out of memory.\nslurmstepd-n0: error: *** STEP 7.0 ON n0 CANCELLED AT 2026-11-22 ***\n"]
    assert classify(replace(FAILED, job_id=7), tails, PATTERNS).kind == "gpu-oom"


def test_a_job_requeued_by_others_is_not_requeued_by_rad() -> None:
    again = classify(replace(FAILED, requeued=True), ["CUDA out of memory."], PATTERNS)
    assert again.kind == "cancelled" and next_attempt(BOOKING, again, PARTITION) is None
