"""What `rad why` says of each kind of waiting, and of jobs that do not share."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from golden_texts import Golden
from hypothesis import given
from hypothesis import strategies as st
from paths import CHECKOUT

from slurm_plugin.admin.top.fleet import NodeAnswer
from slurm_plugin.admin.why.answer import answer, expected_s
from slurm_plugin.admin.why.facts import WaitFacts
from slurm_plugin.admin.why.text import as_json, as_text
from slurm_plugin.core.comments.admin_comment import Note, signed_note
from slurm_plugin.core.comments.signed_comment import signed_booking
from slurm_plugin.core.config.load import Config, PartitionConfig
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.export.status import GpuStatus, JobStatus, NodeStatus
from slurm_plugin.slurm.control import JobView, NodeView
from slurm_plugin.slurm.queries.queue import WaitingJob

NOW_S = 1_772_366_400.0
KEY = b"k" * 32
SHARED = Booking(kind="shared", memory_bytes=12 * GIB, estimate_bytes=10 * GIB, shards=12)
WHOLE = Booking(kind="whole", estimate_bytes=36 * GIB, shards=39)


def comment(booking: Booking) -> str:
    return signed_booking(booking, user_id=1000, key=KEY)


def note(event: str, detail: str, **more: Any) -> str:
    return signed_note(
        Note(event=event, detail=detail, **{"restart": 1, **more}),  # type: ignore[arg-type]
        job_id=7,
        user_id=1000,
        key=KEY,
    )


def booked(*gibs: int, kind: str = "shared") -> tuple[JobStatus, ...]:
    return tuple(
        JobStatus(
            job_id=20 + number,
            user_id=1001,
            kind=kind,
            booked_bytes=gib * GIB,
            estimate_bytes=None,
            used_bytes=None,
            peak_bytes=None,
            smact=None,
        )
        for number, gib in enumerate(gibs)
    )


def gpu(index: int, *jobs: JobStatus, state: str = "ok") -> GpuStatus:
    return GpuStatus(
        index=index,
        uuid=f"GPU-{index}",
        name="H100",
        state=state,
        usable_bytes=39 * GIB,
        used_bytes=0,
        booked_bytes=sum(job.booked_bytes for job in jobs),
        unmanaged_bytes=0,
        smact=None,
        smact_source=None,
        averaged=True,
        jobs=jobs,
    )


def fleet(*gpus: GpuStatus) -> tuple[NodeAnswer, ...]:
    return (NodeAnswer(name="gpu1", status=NodeStatus(host="gpu1", time_s=NOW_S, gpus=gpus)),)


NODE = NodeView(name="gpu1", gres="gpu:a100:2,shard:78", state="MIXED", partitions=("gpu",))
JOB = JobView(
    job_id=7,
    user_id=1000,
    state="PENDING",
    reason="Resources",
    partition="gpu",
    gres="gres/shard:12",
    comment=comment(SHARED),
    priority=100,
)
FACTS = WaitFacts(
    time_s=NOW_S,
    job=JOB,
    config=Config(partitions={"gpu": PartitionConfig(collocate=True, shards_per_gpu=39)}),
    nodes=(NODE,),
    fleet=fleet(gpu(0, *booked(30)), gpu(1, *booked(39, kind="whole"))),
)


def facts(
    *, nodes: tuple[NodeView, ...] | None = None, gpus: tuple[GpuStatus, ...] = (), **job: Any
) -> WaitFacts:
    changed = replace(FACTS, job=replace(JOB, **job))
    if gpus:
        changed = replace(changed, fleet=fleet(*gpus))
    return changed if nodes is None else replace(changed, nodes=nodes)


WHOLE_JOB: dict[str, Any] = {"gres": "gres/gpu:1", "comment": comment(replace(WHOLE, shards=0))}
WAITS: dict[str, tuple[WaitFacts, str, str]] = {
    "priority": (
        replace(
            facts(reason="Priority"),
            waiting=(
                *(
                    WaitingJob(
                        job_id=number,
                        user_id=1001,
                        partition=partition,
                        gres="gres/gpu:1",
                        reason="Resources",
                        priority=priority,
                        restarts=0,
                        submit_s=None,
                    )
                    for number, partition, priority in ((1, "gpu", 200), (2, "gpu", 50), (3, "other", 900))
                ),
            ),
        ),
        "priority",
        "come first: 1 of its partition",
    ),
    "memory of no GPU": (facts(), "memory", "has 12.0 GiB left to book: the most is 9.0 GiB, on gpu1 GPU 0"),
    "CPUs": (
        facts(gpus=(gpu(0, *booked(20)),)),
        "resources",
        "gpu1 GPU 0 has its 12.0 GiB free; what it lacks",
    ),
    "compute": (
        facts(gres="gres/shard:20", comment=comment(replace(SHARED, shards=20)), gpus=(gpu(0, *booked(20)),)),
        "compute",
        "20 shards that it requests for its compute",
    ),
    "an idle GPU has the shards for compute": (
        facts(
            gres="gres/shard:20",
            comment=comment(replace(SHARED, shards=20)),
            gpus=(gpu(0, *booked(20)), gpu(1)),
        ),
        "resources",
        "gpu1 GPU 1 has its 12.0 GiB free; what it lacks there is CPUs",
    ),
    "whole GPU": (
        facts(**WHOLE_JOB, gpus=(gpu(0, *booked(4)), gpu(1, *booked(4)))),
        "whole GPU",
        "needs a whole GPU, and 0 of 2 GPUs are idle",
    ),
    "whole GPU as shards": (
        facts(gres="gres:shard:39", comment=comment(WHOLE)),
        "whole GPU",
        "needs a whole GPU, and 0 of 2",
    ),
    "a GPU that answers nothing": (
        facts(gpus=(gpu(0, state="unhealthy"),)),
        "resources",
        "GPUs, shards, CPUs",
    ),
    "type that is not there": (
        facts(gres="gres/gpu:h100:1", comment=""),
        "never",
        "has a GPU of type h100; it has a100",
    ),
    "type that is not free": (
        facts(gres="gres/gpu:a100:1", comment=comment(replace(WHOLE, shards=0))),
        "whole GPU",
        "a whole GPU of type a100, and 0 of 2",
    ),
    "size that no GPU has": (
        facts(gres="gres/shard:60", comment=""),
        "never",
        "60 shards of a GPU, and the largest has 39",
    ),
    "more GPUs than there are": (facts(gres="gres/gpu:4", comment=""), "never", "4 GPUs, and the nodes"),
    "drained nodes": (
        facts(nodes=(replace(NODE, state="DRAINED", reason="ECC errors"),)),
        "no node",
        "gpu1 drained (ECC errors)",
    ),
    "a node that does not respond": (facts(nodes=(replace(NODE, state="IDLE*"),)), "no node", "gpu1 idle*"),
    "ReqNodeNotAvail": (
        facts(reason="ReqNodeNotAvail,_UnavailableNodes:gpu1"),
        "no node",
        "down, drained, or reserved (gpu1)",
    ),
    "drained nodes that Slurm does not name": (
        facts(
            reason="Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved",
            nodes=(replace(NODE, state="DRAINED", reason="ECC errors"),),
        ),
        "no node",
        "gpu1 drained (ECC errors)",
    ),
    "dependency": (facts(reason="Dependency"), "dependency", "depends on has not ended"),
    "dependency that never comes": (facts(reason="DependencyNeverSatisfied"), "never", "never starts"),
    "held by user": (facts(reason="JobHeldUser", priority=0), "held by user", "its user holds it"),
    "requeued and held": (facts(reason="job_requeued_in_held_state"), "held by user", "requeuehold"),
    "held by admin": (facts(reason="JobHeldAdmin", priority=0), "held by admin", "an admin holds it"),
    "failed Prolog": (facts(reason="launch_failed_requeued_held"), "held after failure", "Slurm holds it"),
    "QOS limit": (facts(reason="QOSMaxGRESPerUser"), "limit", "QOSMaxGRESPerUser"),
    "account limit": (facts(reason="MaxGRESPerAccount"), "limit", "MaxGRESPerAccount"),
    "association limit": (facts(reason="AssocGrpBillingMinutes"), "limit", "AssocGrpBillingMinutes"),
    "partition": (facts(reason="PartitionDown"), "partition down", "starts no jobs"),
    "reservation": (facts(reason="Reservation"), "reservation", "has not begun"),
    "--begin": (facts(reason="BeginTime", start_time_s=NOW_S + 7200), "begin", "--begin"),
    "requeued without memory": (
        facts(
            reason="BeginTime",
            start_time_s=NOW_S + 20,
            restarts=1,
            admin_comment=note("requeued", "no GPU has the memory, 3.0 GiB at most", start_in_s=20),
        ),
        "memory",
        "no GPU has the memory, 3.0 GiB at most; it tries again",
    ),
    "requeued at smact_max": (
        facts(
            reason="BeginTime",
            restarts=1,
            admin_comment=note("requeued", "every GPU is at or above SMACT 0.8", start_in_s=20),
        ),
        "compute",
        "at or above SMACT 0.8",
    ),
    "requeued for an idle GPU": (
        facts(reason="BeginTime", restarts=1, admin_comment=note("requeued", "0 of 1 GPUs idle")),
        "whole GPU",
        "0 of 1 GPUs idle",
    ),
    "a note of an earlier run": (
        facts(reason="BeginTime", restarts=2, admin_comment=note("requeued", "no GPU has the memory")),
        "requeue",
        "delays the start of a requeued job",
    ),
    "rerun that is delayed": (
        facts(
            reason="BeginTime", restarts=1, admin_comment=note("recovered", "out of memory", fault="estimate")
        ),
        "rerun",
        "with a priority boost: out of memory",
    ),
    "rerun with a whole GPU": (
        facts(
            restarts=1,
            gres="gres/shard:39",
            comment=comment(replace(WHOLE, recoveries=1)),
            admin_comment=note("recovered", "out of memory", fault="estimate"),
        ),
        "rerun",
        "runs again, with a priority boost: out of memory; it needs a whole GPU, and 0 of 2",
    ),
    "not looked at yet": (facts(reason="", gres="", comment=""), "resources", "has not decided"),
    "an unknown reason": (facts(reason="SchedDefer"), "other", "Slurm says SchedDefer"),
}


@pytest.mark.parametrize("name", WAITS)
def test_why_a_job_waits(name: str) -> None:
    found, kind, words = WAITS[name]
    cause = answer(found)[0]
    assert cause.kind == kind and words in cause.text, cause


def test_at_least_twelve_kinds_of_waiting_are_distinguished() -> None:
    assert len({kind for _, kind, _ in WAITS.values()} - {"resources", "other"}) >= 12


NOT_SHARED: dict[str, tuple[WaitFacts, str, str]] = {
    "radd away": (
        facts(gres="gres/gpu:1", comment=""),
        "radd away",
        "radd did not answer when it was submitted",
    ),
    "quarantine": (
        facts(
            state="RUNNING",
            restarts=1,
            admin_comment=note("warned", "no MPS server with other users until 2026"),
        ),
        "quarantine",
        "until 2026",
    ),
    "own server": (
        facts(state="RUNNING", comment=comment(replace(SHARED, own_server=True))),
        "own server",
        "mps_server=own",
    ),
    "may fill it": (facts(**WHOLE_JOB), "not shared", "may fill it: estimated 36.0 GiB"),
    "need unknown": (
        facts(**{**WHOLE_JOB, "comment": comment(Booking(kind="whole"))}),
        "not shared",
        "need is unknown",
    ),
    "salloc": (facts(**WHOLE_JOB, batch=False), "not shared", "as salloc or srun requested it"),
    "MIG": (facts(gres="gres/gpu:1g.10gb:1", comment=""), "not shared", "a MIG instance"),
    "several GPUs": (
        facts(gres="gres/gpu:2", comment=comment(Booking(kind="whole", gpus=2))),
        "not shared",
        "several GPUs do not share",
    ),
    "after a rerun": (
        facts(**{**WHOLE_JOB, "comment": comment(replace(WHOLE, recoveries=1))}),
        "not shared",
        "ran out of memory before",
    ),
    "unmanaged partition": (
        replace(FACTS, config=Config(partitions={"other": PartitionConfig()})),
        "not shared",
        "no GPUs in partition gpu",
    ),
    "observe": (replace(FACTS, config=replace(FACTS.config, mode="observe")), "not shared", "mode"),
}


@pytest.mark.parametrize("name", NOT_SHARED)
def test_why_a_job_does_not_share(name: str) -> None:
    found, kind, words = NOT_SHARED[name]
    causes = answer(found)
    assert len(causes) == 2 and causes[1].kind == kind and words in causes[1].text, causes


@pytest.mark.parametrize(
    "found",
    [
        FACTS,
        replace(WAITS["whole GPU"][0], config=Config()),
        facts(gres="", comment=""),
        facts(state="COMPLETED", comment=""),
        facts(comment="rad2:whole:gpus=x:0123456789abcdef"),
    ],
    ids=["shared", "rad.toml unreadable", "no GPU", "ended", "forged"],
)
def test_a_job_that_shares_or_needs_no_gpu_has_one_cause(found: WaitFacts) -> None:
    assert len(answer(found)) == 1


def test_a_running_job_shows_where_and_with_which_others() -> None:
    own = replace(booked(1)[0], job_id=7)
    found = facts(state="RUNNING", reason="", gpus=(gpu(0, own, *booked(4)), gpu(1, *booked(9))))
    assert answer(found)[0].text == "it runs on gpu1 GPU 0 with 20"
    assert answer(replace(found, fleet=()))[0].text == "it runs on its node"


def test_shards_may_have_the_type_of_their_gpus() -> None:
    nodes = (replace(NODE, gres="gpu:a100:1,gpu:h100:1,shard:a100:39,shard:h100:79"),)
    assert answer(facts(nodes=nodes, gres="gres/shard:h100:60", comment=""))[0].kind != "never"
    cause = answer(facts(nodes=nodes, gres="gres/shard:a100:60", comment=""))[0]
    assert cause.kind == "never" and "largest has 39" in cause.text


@pytest.mark.parametrize(("in_s", "known"), [(3600.0, True), (365 * 86_400.0, False), (None, False)])
def test_a_start_that_slurm_cannot_know_is_not_shown(in_s: float | None, known: bool) -> None:
    start_s = None if in_s is None else NOW_S + in_s
    assert expected_s(facts(start_time_s=start_s)) == (start_s if known else None)


def test_what_is_printed(golden: Golden) -> None:
    texts = [
        as_text(replace(WAITS[name][0], missing=("GPUs: not asked",)))
        for name in ("memory of no GPU", "held by user", "rerun with a whole GPU", "ReqNodeNotAvail")
    ]
    golden("why.txt", "\n\n".join(texts))


def test_json_names_the_job_in_what_to_do() -> None:
    row = json.loads(as_json(WAITS["held by user"][0]))
    assert (row["job_id"], row["reason"]) == (7, "JobHeldUser")
    assert row["causes"] == [
        {"kind": "held by user", "text": "its user holds it", "fix": "scontrol release 7"}
    ]


TEXT = st.text(max_size=60)


@given(reason=TEXT, gres=TEXT, comment=TEXT, admin_comment=TEXT, partition=TEXT, node=TEXT)
def test_whatever_slurm_prints_there_is_an_answer_of_plain_lines(node: str, **fields: Any) -> None:
    found = facts(nodes=(replace(NODE, reason=node, state=node),), **fields)
    text = as_text(found)
    assert text.count("\n") >= 1 and all(line.isprintable() for line in text.split("\n"))


def test_the_manual_shows_what_is_printed() -> None:
    shown = "".join(f"    {line}\n" for line in as_text(WAITS["memory of no GPU"][0]).splitlines())
    assert shown in (CHECKOUT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("values", ["gpus=0:ask=8", f"gpus=1:mem={'9' * 200}", "gpus=99999999:ask=1"])
def test_a_comment_that_its_user_wrote_gives_an_answer(values: str) -> None:
    assert as_text(facts(comment=f"rad2:shared:{values}:0123456789abcdef")).startswith("Job 7")
