from __future__ import annotations

import time
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from gpumemnet.learning.dataset.generate import generate  # noqa: E402
from gpumemnet.learning.dataset.running.child import MeasurementJob  # noqa: E402
from gpumemnet.learning.dataset.running.job_queue import LONG, JobQueue  # noqa: E402
from gpumemnet.learning.dataset.running.need import estimate_need  # noqa: E402
from gpumemnet.learning.dataset.running.runner import Runner  # noqa: E402


class IdleGpu:
    """A GPU that no job uses."""

    def usable_bytes(self) -> int:
        return 100 << 30

    def processes(self) -> dict[int, int]:
        return {}

    def begin_activity(self) -> None: ...

    def end_activity(self) -> dict[str, float | None]:
        return {}


def small_jobs(count: int) -> list[MeasurementJob]:
    found = []
    for index in range(2000):
        config = replace(
            generate(21, index), batch_size=2, gradient_checkpointing=False, implementation="default"
        )
        if config.family == "mlp" and estimate_need(config).params < 300_000:
            found.append(MeasurementJob(config=config))
        if len(found) == count:
            break
    return found


@pytest.mark.slow
def test_every_job_leaves_one_record_and_processes_are_used_again() -> None:
    rows: list[dict[str, object]] = []
    jobs = small_jobs(6)
    broken = replace(jobs[0], config=replace(jobs[0].config, index=999, arch={}))
    end = time.monotonic() + 60
    counts = Runner([*jobs, broken], IdleGpu(), rows.append, slots=1, stop_at_s=end, device="cpu").run()
    assert counts == {"ok": 6, "error": 1}
    assert {r["index"] for r in rows} == {j.config.index for j in jobs} | {999}
    assert "KeyError" in next(str(r["error"]) for r in rows if r["outcome"] == "error")


def test_a_process_goes_on_only_with_jobs_of_its_libraries() -> None:
    queue = JobQueue(MeasurementJob(config=generate(1, i)) for i in range(200))
    taken = [queue.take("cublas") for _ in range(10)]
    assert all(job is not None and job.libraries() == "cublas" for job in taken)


def test_kinds_stay_about_equally_far() -> None:
    queue = JobQueue(MeasurementJob(config=generate(1, i)) for i in range(5000))
    taken = 0
    while queue.take("cublas") is not None:
        taken += 1
    assert taken < 5 * LONG, "the kind gives way once another has waited long"
    nxt = queue.take()
    assert nxt is not None
    assert nxt.libraries() != "cublas"
