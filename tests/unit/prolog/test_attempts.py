"""Which attempts are made to place a job, for any results that they may have."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

from fakes import FakeClock
from hypothesis import given
from hypothesis import strategies as st

from prolog import attempts
from prolog.attempts import AttemptResult, place_job
from prolog.place import Placed, PlacementContext
from slurm_plugin.core.clock import Deadline
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.records.node import Allocation, Demand, Placement

ALLOCATION = Allocation(
    job_id=1, user_id=0, kind="shared", gpus=("GPU-a",), gpu_indices=(0,), booked_bytes=1, created_s=0.0
)
DEMAND = Demand(job_id=1, user_id=0, kind="shared", gpus=1, booked_bytes=1, gpu_indices=(0,))
RESULTS = ("placed", "requeued", "lingers", "unlimited")


@dataclass
class World:
    """What each step of an attempt comes to, in the order of the calls; then the last one repeats."""

    placements: list[str]
    yes: list[bool]
    observes: bool = False
    steps: list[str] = field(default_factory=list)

    def _next(self) -> bool:
        return self.yes.pop(0) if self.yes else False

    def says(self, step: str) -> bool:
        answer = self._next()
        self.steps.append(f"{step}: {'yes' if answer else 'no'}")
        return answer

    def context(self, *, demand: Demand = DEMAND, apart: bool = True) -> PlacementContext:
        blind = self.says("blind")
        self.steps.append(f"read apart={apart} uncapped={demand.uncapped}")
        node: Any = SimpleNamespace(config=SimpleNamespace(mode="observe" if self.observes else "enforce"))
        late = 0.0 if self.says("late") else 1.0
        return PlacementContext(
            node=node,
            job=SimpleNamespace(partition="gpu"),  # type: ignore[arg-type]
            demand=demand,
            settings=PartitionConfig(),
            readings=(),
            blind=blind,
            guarded=frozenset(),
            pin="bound",
            apart=apart,
            soon=Deadline(FakeClock(), late),
        )

    def place_once(self, context: PlacementContext) -> Placed:
        result = self.placements.pop(0) if self.placements else "placed"
        if result == "unlimited" and not context.apart:
            result = "requeued"  # there is no job to keep apart from
        self.steps.append(result)
        if result == "placed":
            placement = Placement(gpus=("GPU-a",), reason="")
            return Placed(placement=placement, allocation=None if self.observes else ALLOCATION)
        return Placed(
            placement=Placement(
                gpus=(), reason="", requeue=True, lingers=result == "lingers", unlimited=result == "unlimited"
            )
        )

    def start_mps(self, placed: Placed) -> dict[str, str] | None:
        if placed.allocation is None:
            return {}
        return {} if self.says("mps") else None

    def newer(self, context: PlacementContext) -> PlacementContext | None:
        return replace(context) if self.says("newer") else None

    def run(self) -> AttemptResult:
        def read(*values: Any, apart: bool, soon: Deadline) -> PlacementContext:
            return self.context(demand=values[2], apart=apart)

        with mock.patch.multiple(
            attempts,
            context_of=read,
            place_once=self.place_once,
            reconciled=lambda _: self.says("reconciled"),
            with_newer_sample=self.newer,
        ):
            return place_job(
                self.context(), start_mps=self.start_mps, requeue=lambda _: self.says("requeued")
            )

    @property
    def tried(self) -> list[str]:
        return [step for step in self.steps if step in RESULTS]


worlds = st.builds(
    World,
    placements=st.lists(st.sampled_from(RESULTS), max_size=12),
    yes=st.lists(st.booleans(), max_size=40),
    observes=st.booleans(),
)


@given(worlds)
def test_attempts_end_and_their_last_result_is_returned(world: World) -> None:
    result = world.run()
    assert 1 <= len(world.tried) <= 12
    assert (result.placed.placement.gpus != ()) == (world.tried[-1] == "placed")


@given(worlds)
def test_a_placed_job_is_placed_again_only_where_its_mps_server_did_not_start(world: World) -> None:
    result = world.run()
    assert world.tried[:-1].count("placed") == world.steps.count("mps: no") <= 1
    assert result.demand.uncapped == ("mps: no" in world.steps)
    assert result.mps is not None


@given(worlds)
def test_nothing_is_waited_for_reconciled_or_requeued_while_observing(world: World) -> None:
    world.observes = True
    world.run()
    assert len(world.tried) == 1
    assert not [
        step for step in world.steps if step.startswith(("newer:", "reconciled:", "requeued:", "mps:"))
    ]


@given(worlds)
def test_a_job_is_requeued_for_missing_enforcement_only_after_all_else(world: World) -> None:
    result = world.run()
    assert result.requeued == (world.steps[-1] == "requeued: yes")
    if result.requeued:
        assert world.tried[-1] == "unlimited"
    unenforced = sum("apart=False" in step for step in world.steps)
    assert unenforced == world.steps.count("requeued: no")


@given(worlds)
def test_between_two_readings_a_sample_and_a_reconciliation_are_tried_once_each(world: World) -> None:
    world.run()
    round_: list[str] = []
    for step in [*world.steps, "read"]:
        if step.startswith("read "):
            names = [one.split(":")[0] for one in round_ if one.startswith(("newer", "reconciled"))]
            assert names in ([], ["newer"], ["reconciled"], ["newer", "reconciled"])
            round_ = []
        round_.append(step)
