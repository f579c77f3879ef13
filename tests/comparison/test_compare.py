"""The comparison sees what it is there for, and lets pass what is declared."""

from __future__ import annotations

from typing import Any

from comparison.both import in_both
from comparison.catalogue import heads
from comparison.compare import Difference, compare
from comparison.lanes import BATCH, batches
from comparison.table import grid

PROBE = "1.0/srun-n1"


def record(
    files: dict[str, str] | None = None, *, job: dict[str, str] | None = None, **changed: Any
) -> dict[str, Any]:
    """Return a record of a job of one step that saw one GPU."""
    fields = {"JobId": "700001", "JobState": "COMPLETED", "ExitCode": "0:0", "Comment": "mine"}
    return {
        "cell": "gres-1.sbatch.0",
        "head": "gres-1",
        "entrance": "sbatch",
        "forms": ["plain", "srun-n1"],
        "submission": {"rc": 0, "out": "Submitted batch job 700001\n", "err": ""},
        "job_id": "700001",
        "jobs": [fields | (job or {})],
        "steps": [["700001", "COMPLETED", "0:0"], ["700001.0", "COMPLETED", "0:0"]],
        "files": {f"{PROBE}.rc": "0\n", f"{PROBE}.0.17.env": env()} | (files or {}),
        "work": "/somewhere/lab/work",
    } | changed


def env(*more: str, gpus: str = "0", job_id: str = "700001") -> str:
    return "\0".join([f"SLURM_JOB_ID={job_id}", f"CUDA_VISIBLE_DEVICES={gpus}", "SLURM_GPUS=1", *more])


def texts(found: list[Difference]) -> list[str]:
    return [one.text for one in found]


def test_ids_nodes_and_gpus_may_differ() -> None:
    other = record(
        {f"{PROBE}.0.17.env": env(gpus="3", job_id="700009")}, job={"JobId": "700009"}, job_id="700009"
    )
    other["submission"] = {"rc": 0, "out": "Submitted batch job 700009\n", "err": ""}
    assert compare(record(), other) == []


def test_a_refused_submission_is_grave() -> None:
    submission = {"rc": 1, "out": "", "err": "sbatch: error: no\n"}
    refused = record() | {"jobs": [], "submission": submission, "files": {}}
    found = compare(record(), refused)
    assert [one.form for one in found if one.grave] == ["submission", "job"]
    rescued = compare(refused, record())
    assert any(one.only_with for one in rescued) and not any(one.grave for one in rescued)


def test_a_job_that_no_longer_completes_is_grave() -> None:
    found = compare(record(), record(job={"JobState": "FAILED", "ExitCode": "1:0"}))
    assert [(one.text, one.grave) for one in found] == [
        ("ExitCode: 0:0 -> 1:0", False),
        ("JobState: COMPLETED -> FAILED", True),
    ]


def test_a_step_that_fails_is_grave_and_says_why() -> None:
    failed = {f"{PROBE}.rc": "1\n", f"{PROBE}.err": "srun: error: not found in the job\n"}
    (found,) = compare(record(), record(failed))
    assert found.grave and found.form == "srun-n1"
    assert found.text == "status 0 -> 1 (srun: error: not found in the job)"


def test_a_step_that_was_refused_and_crashes_is_grave() -> None:
    refused, crashed = record({f"{PROBE}.rc": "1\n"}), record({f"{PROBE}.rc": "139\n"})
    assert [one.grave for one in compare(refused, crashed)] == [True]
    assert [one.grave for one in compare(crashed, crashed)] == []


def test_which_task_ended_a_step_is_by_chance() -> None:
    err = "srun: error: NODE: task 1: Terminated\n"
    first, stopped = (record({f"{PROBE}.rc": rc, f"{PROBE}.err": err}) for rc in ("4\n", "143\n"))
    assert compare(first, stopped) == []
    assert [one.grave for one in compare(record(), stopped)] == [True]


def test_a_task_that_never_ran_is_grave_whatever_the_status() -> None:
    without = record({f"{PROBE}.rc": "7\n"})
    failed = record({f"{PROBE}.rc": "1\n"})
    del failed["files"][f"{PROBE}.0.17.env"]
    assert [one.grave for one in compare(without, failed)] == [True]
    failed["files"][f"{PROBE}.rc"] = "7\n"
    assert [one.text for one in compare(without, failed) if one.grave] == [
        "1 -> 0 tasks saw their environment"
    ]


def test_steps_are_those_of_the_accounts() -> None:
    other = record(steps=[["700009", "COMPLETED", "0:0"], ["700009.0", "COMPLETED", "0:0"]])
    assert compare(record(), other) == []
    fewer = record(steps=[["700001", "COMPLETED", "0:0"], ["700001.0", "CANCELLED by 5", "0:9"]])
    (found,) = compare(record(), fewer)
    assert found.grave and found.text == "in sacct: 0 COMPLETED 0:0 -> 0 CANCELLED 0:9"
    more = record(steps=[*record()["steps"], ["700001.1", "COMPLETED", "0:0"]])
    assert [one.only_with for one in compare(record(), more)] == [True]
    failed = record(steps=[*record()["steps"], ["700001.1", "FAILED", "1:0"]])
    assert [one.only_with for one in compare(record(), failed)] == [False]


def test_the_form_of_gpu_numbers_counts() -> None:
    uuids = record({f"{PROBE}.0.17.env": env(gpus="GPU-1b2c")})
    assert texts(compare(record(), uuids)) == ["CUDA_VISIBLE_DEVICES: 1 integers -> 1 UUIDs"]
    two = record({f"{PROBE}.0.17.env": env(gpus="0,1")})
    assert texts(compare(record(), two)) == ["CUDA_VISIBLE_DEVICES: 1 integers -> 2 integers"]
    twice = record({f"{PROBE}.0.17.env": env(gpus="1,1")})
    assert texts(compare(record(), twice)) == ["CUDA_VISIBLE_DEVICES: 1 integers -> 1,1"]


def test_what_rad_adds_is_allowed_and_what_it_changes_is_not() -> None:
    added = record({f"{PROBE}.0.17.env": env("RAD_KIND=whole", "CUDA_DEVICE_ORDER=PCI_BUS_ID")})
    assert compare(record(), added) == []
    own = record({f"{PROBE}.0.17.env": env("OMP_NUM_THREADS=4")})
    assert texts(compare(own, added)) == ["OMP_NUM_THREADS: 4 -> (unset)"]
    gone = record({f"{PROBE}.0.17.env": env().replace("\0SLURM_GPUS=1", "")})
    assert texts(compare(record(), gone)) == ["SLURM_GPUS: 1 -> (unset)"]


def test_a_comment_stays_in_front_of_what_rad_adds() -> None:
    assert compare(record(), record(job={"Comment": "mine rad2:whole:gpus=1:0f"})) == []
    assert texts(compare(record(), record(job={"Comment": "rad2:whole:gpus=1:0f"}))) == [
        "Comment: mine -> (none)"
    ]


def test_what_the_user_reads_may_have_lines_of_rad_but_loses_none() -> None:
    reported = {"rc": 0, "out": "Submitted batch job 700001\n", "err": "sbatch: rad: shares a GPU\n"}
    assert compare(record(), record(submission=reported)) == []
    assert texts(compare(record({f"{PROBE}.out": "hello\n"}), record({f"{PROBE}.out": ""}))) == [
        "1.0/srun-n1.out: hello -> (nothing)"
    ]


def test_only_what_differs_twice_counts() -> None:
    grave, calm = Difference(form="srun", text="a", grave=True), Difference(form="srun-n1", text="b")
    assert in_both([grave, calm], [calm]) == [calm]
    assert in_both([grave], [Difference(form="srun", text="another", grave=True)]) != []
    assert in_both([calm], [Difference(form="srun-n1", text="another")]) == []
    assert in_both([], [grave, calm]) == []


def test_how_many_nodes_a_job_gets_is_by_chance_of_one_head_alone() -> None:
    one, two = ({"NumNodes": count, "NumCPUs": str(2 * int(count))} for count in "12")
    assert texts(compare(record(job=two), record(job=one))) == ["NumCPUs: 4 -> 2", "NumNodes: 2 -> 1"]
    either = {"head": "two-nodes-min-max"}
    assert compare(record(job=two) | either, record(job=one) | either) == []


def test_a_resumed_run_holds_each_head_without_a_result_once() -> None:
    found = batches(heads(), {"gres-1", "gres-bare"}, "long")
    names = [name for batch in found for name in batch]
    assert sorted(names) == sorted({head.name for head in heads()} - {"gres-1", "gres-bare"})
    kinds = {head.name for head in heads() if head.is_kind}
    assert all(len(batch) == 1 or (not batch & kinds and len(batch) <= BATCH) for batch in found)


def test_a_grid_shows_the_gravest_result_of_each_form_and_head() -> None:
    found = (("gres-1", "srun", "same"), ("gres-1", "srun", "only with"), ("het", "srun", "same"))
    rows = [
        {"slurm": "22.05.8", "variant": "rad", "head": head, "form": form, "result": result}
        for head, form, result in (*found, ("gres-1", "G1", "fails"), ("gres-1", "G1", "differs"))
    ]
    assert [line.split() for line in grid(rows).splitlines()] == [
        ["Slurm", "22.05.8,", "rad"],
        ["ab"],
        ["srun", "w."],
        ["G1", "F"],
        ["a", "gres-1,", "b", "het"],
    ]
