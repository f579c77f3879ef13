from __future__ import annotations

from dataclasses import replace

import pytest

from lab.demo import LINE, table, why_back
from lab.examples import EXAMPLES, PEOPLE, Example, ExampleRow, Timed, whole_gpu_end_s
from lab.watch import ObservedRun
from slurm_plugin.core.units import GIB

WHOLE = 39
SHARED = ExampleRow(
    example=Example(name="small", sbatch=("small.sh",)),
    job_id=1,
    messages="RAD: requested 4.0 GiB; booked 4.0 GiB",
    fields={"JobState": "COMPLETED", "Restarts": "0", "Priority": "7", "waited": "1 s"},
    runs=[ObservedRun(gpus={("n0", 2)}, peak_bytes=3 * GIB, neighbours={2})],
    shards=[4],
    estimate_bytes=3 * GIB,
    returns=[],
    submitted_priority=7,
)
RECOVERED = replace(
    SHARED,
    example=replace(SHARED.example, recovers=True),
    fields=SHARED.fields | {"Restarts": "1"},
    rerun_priority=8,
    runs=[*SHARED.runs, ObservedRun(gpus={("n0", 3)}, peak_bytes=30 * GIB)],
    shards=[4, WHOLE],
    returns=["recovered"],
)


def test_what_must_come_of_an_example_is_no_fault() -> None:
    assert SHARED.faults(WHOLE) == []
    assert RECOVERED.faults(WHOLE) == []
    assert (
        replace(RECOVERED, shards=[4, 0]).faults(WHOLE) == []
    )  # gpu:1, where the version takes it after a requeue


def test_a_requeue_is_no_fault_but_a_recovery_that_was_not_expected_is() -> None:
    assert replace(SHARED, returns=["requeued"], fields=SHARED.fields | {"Restarts": "1"}).faults(WHOLE) == []
    assert replace(SHARED, returns=["recovered"]).faults(WHOLE)


@pytest.mark.parametrize(
    ("row", "word"),
    [
        (replace(SHARED, job_id=None, messages="no such partition"), "refused"),
        (replace(SHARED, fields=SHARED.fields | {"JobState": "FAILED"}), "FAILED"),
        (replace(SHARED, runs=[]), "ran 0 times"),
        (replace(SHARED, runs=[ObservedRun(gpus={("n0", 1), ("n0", 2)})]), "held [2] GPUs"),
        (replace(SHARED, shards=[0]), "requested [0] shards"),
        (replace(SHARED, shards=[WHOLE]), "requested [39] shards"),
        (replace(SHARED, estimate_bytes=None), "no estimate"),
        (replace(SHARED, example=replace(SHARED.example, shared=False), shards=[WHOLE]), "neighbours [2]"),
        (replace(SHARED, example=replace(SHARED.example, shows="broken")), "its user got"),
        (replace(RECOVERED, returns=[]), "returned"),
        (replace(RECOVERED, shards=[4, 4]), "requested [4, 4]"),
        (replace(RECOVERED, runs=RECOVERED.runs[:1]), "ran 1 times"),
        (replace(RECOVERED, runs=[SHARED.runs[0], replace(SHARED.runs[0])]), "neighbours [2]"),
        (replace(RECOVERED, rerun_priority=7), "at priority 7"),
        (replace(RECOVERED, fields=RECOVERED.fields | {"Priority": "8"}), "kept priority 8"),
    ],
)
def test_every_difference_is_reported(row: ExampleRow, word: str) -> None:
    faults = row.faults(WHOLE)
    assert any(word in fault for fault in faults), faults


def test_a_rerun_is_reported_in_the_cells_of_both_runs() -> None:
    assert RECOVERED.cells() == (
        "small (1)",
        "3.0 GiB",
        "4 > 39",
        "2 > 3",
        "3.0 GiB > 30.0 GiB",
        "1 s",
        "COMPLETED",
        "1",
    )


def test_columns_line_up() -> None:
    headings, ruler, *rows = table([SHARED.cells(), RECOVERED.cells()]).splitlines()
    start = headings.index("estimate")
    assert ruler[start - 1] == " " and ruler[start] == "-"
    assert [row[start:].startswith("3.0 GiB") for row in rows] == [True, True]


def timed(seconds: float, *, gpus: int = 1, submitted_s: float = 0.0) -> Timed:
    """Return a job that started 100 s after its submission."""
    start_s = submitted_s + 100.0
    return Timed(gpus=gpus, submitted_s=submitted_s, start_s=start_s, end_s=start_s + seconds)


@pytest.mark.parametrize(
    ("jobs", "end_s"),
    [
        ([], 0.0),
        ([timed(5.0), timed(7.0)], 7.0),
        ([timed(5.0), timed(7.0), timed(4.0)], 9.0),
        (
            [timed(5.0), timed(3.0, gpus=2), timed(1.0)],
            9.0,
        ),  # the second waits for both GPUs, the third for one
        ([timed(5.0), timed(2.0, submitted_s=20.0)], 22.0),
    ],
)
def test_whole_gpus_are_given_in_the_order_of_submission(jobs: list[Timed], end_s: float) -> None:
    assert whole_gpu_end_s(jobs, gpus=2) == end_s


def test_users_have_names_of_people() -> None:
    assert {example.user for example in EXAMPLES} == set(PEOPLE)
    assert not set(PEOPLE.values()) & {"nobody", "games", "user"}


def test_a_quoted_error_is_cut_between_words() -> None:
    detail = "out of GPU memory (pytorch), requeued with a whole GPU: torch.OutOfMemoryError: CUDA out of memory. Tried"
    note = f"rad: recovered peak_mib=1844 restart=1 fault=1 - {detail} to allocate 409.60 MiB sig:de0f5625f68f6504"
    shown = why_back(note).removesuffix(" ...")
    assert LINE - 20 < len(shown) < LINE and f"{detail} ".startswith(f"{shown} ")
    assert why_back("of an admin") == "of an admin"
