"""Which program reconciles a node, which waits for it, and which need not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fakes import FakeClock

from lab.bare_node import make_bare_node
from slurm_plugin.core.config.load import load_config
from slurm_plugin.core.errors import LedgerError
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.ledger.store import StoredLedger
from slurm_plugin.node import reconcile as module
from slurm_plugin.node.node import Node
from slurm_plugin.node.reconcile import LOCK_S, OVERDUE_S, reconcile_if_due

LOST = StoredLedger(ledger=Ledger(), lost=True)


@dataclass
class Store:
    """A ledger of which a test knows how it is, and whether another hook reconciles now."""

    found: StoredLedger
    other_reconciles: bool = False
    reconciled_just_now: StoredLedger | None = None

    def read(self) -> StoredLedger:
        return self.found

    @contextmanager
    def reconciling(self) -> Iterator[bool]:
        self.found = self.reconciled_just_now or self.found
        yield not self.other_reconciles


class Clock(FakeClock):
    """Something happens during a sleep."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__()
        self._meanwhile = meanwhile

    def sleep(self, duration_s: float) -> None:
        super().sleep(duration_s)
        if len(self.slept) == 3:
            self._meanwhile()


class Bench:
    """A node, its ledger, and how often it was reconciled by us."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, found: StoredLedger, *, other_reconciles: bool
    ) -> None:
        self.store = Store(found, other_reconciles)
        self.clock = Clock(self.rebuilt_by_another)
        self.rebuilds = False
        self.reconciled = 0
        node = Node.here(load_config(make_bare_node(folder, gpus=1, gpu_gib=10)), {})
        self.node = replace(node, store=self.store, clock=self.clock)  # type: ignore[arg-type]
        monkeypatch.setattr(module, "reconcile_node", self.reconcile_node)

    def reconcile_node(self, node: Node, readings: object) -> None:
        self.reconciled += 1

    def rebuilt_by_another(self) -> None:
        if self.rebuilds:
            self.store.found = self.of_age(0.0)

    def of_age(self, age_s: float) -> StoredLedger:
        return StoredLedger(ledger=Ledger(reconciled_s=self.clock.monotonic_s() - age_s), lost=False)


def bench_of(folder: Path, monkeypatch: pytest.MonkeyPatch, *, other_reconciles: bool = False) -> Bench:
    return Bench(folder, monkeypatch, LOST, other_reconciles=other_reconciles)


@pytest.mark.parametrize(("age_s", "reconciled"), [(0.0, 0), (OVERDUE_S, 0), (OVERDUE_S + 1, 1)])
def test_a_node_is_reconciled_by_the_hook_that_finds_it_overdue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age_s: float, reconciled: int
) -> None:
    bench = bench_of(tmp_path, monkeypatch)
    bench.store.found = bench.of_age(age_s)
    reconcile_if_due(bench.node, ())
    assert (bench.reconciled, bench.clock.slept) == (reconciled, [])


@pytest.mark.parametrize(
    "found", [LOST, StoredLedger(ledger=Ledger(), lost=False)], ids=["lost", "never reconciled"]
)
def test_a_lost_ledger_is_rebuilt_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: StoredLedger
) -> None:
    bench = bench_of(tmp_path, monkeypatch)
    bench.store.found = found
    reconcile_if_due(bench.node, ())
    assert (bench.reconciled, bench.clock.slept) == (1, [])


def test_no_hook_waits_for_another_that_reconciles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(tmp_path, monkeypatch, other_reconciles=True)
    bench.store.found = bench.of_age(OVERDUE_S + 1)
    reconcile_if_due(bench.node, ())
    assert (bench.reconciled, bench.clock.slept) == (0, [])


def test_what_another_has_reconciled_meanwhile_is_not_reconciled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of(tmp_path, monkeypatch)
    bench.store.reconciled_just_now = bench.of_age(0.0)
    reconcile_if_due(bench.node, ())
    assert (bench.reconciled, bench.clock.slept) == (0, [])


def test_a_hook_that_needs_a_lost_ledger_waits_for_the_one_that_rebuilds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of(tmp_path, monkeypatch, other_reconciles=True)
    bench.rebuilds = True
    reconcile_if_due(bench.node, ())
    assert bench.reconciled == 0 and len(bench.clock.slept) == 3
    assert bench.clock.slept == sorted(bench.clock.slept), "so that the one that reconciles has the processor"


def test_no_job_waits_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(tmp_path, monkeypatch, other_reconciles=True)
    with pytest.raises(LedgerError, match="did not rebuild it in time"):
        reconcile_if_due(bench.node, ())
    assert bench.reconciled == 0 and LOCK_S - 0.1 < sum(bench.clock.slept) < 2 * LOCK_S
