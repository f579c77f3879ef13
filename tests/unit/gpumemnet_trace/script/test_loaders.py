"""Batches of many sizes: the largest of the first ones is traced, and the script cannot tell."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections import UserDict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402

from gpumemnet.tracing.saved.record import SavedProfile  # noqa: E402
from gpumemnet.tracing.script import loaders  # noqa: E402
from gpumemnet.tracing.script.pretend import Settings  # noqa: E402

MAIN = "from gpumemnet.cli import main; main()"
PADDED = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    texts = [torch.randint(0, 999, ({length},)) for k in range(400)]

    def padded(some):
        longest = nn.utils.rnn.pad_sequence(some, batch_first=True)
        return {{"tokens": longest, "labels": longest.clone()}}

    loader = DataLoader(texts, 8, collate_fn=padded, num_workers=2)
    model = nn.Sequential(nn.Embedding(999, 256), nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 999)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in loader:
        labels = batch.pop("labels").cuda()
        loss = nn.functional.cross_entropy(model(batch.pop("tokens").cuda()).flatten(0, 1), labels.flatten())
        loss.backward(); optimizer.step(); optimizer.zero_grad()
"""


@pytest.fixture
def said() -> Iterator[Settings]:
    make, begin = DataLoader.__init__, DataLoader.__iter__
    found = Settings()
    loaders.pretended(found)
    yield found
    DataLoader.__init__, DataLoader.__iter__ = make, begin


def of_lengths(lengths: list[int], *, samples: int = 2) -> Any:
    return DataLoader([torch.zeros(samples, n) for n in lengths], batch_size=None, num_workers=3)


def lengths_of(loader: Any) -> list[int]:
    return [batch.shape[-1] for batch in loader]


# --- what comes


def test_batches_that_are_alike_come_as_they_are_and_no_more_of_them_are_read(
    said: Settings,
) -> None:
    read: list[int] = []

    def items() -> Iterator[Any]:
        for n in range(50):
            read.append(n)
            yield torch.full((3,), n)

    class Stream(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            return items()

    first = iter(DataLoader(Stream(), batch_size=None))
    assert [int(next(first)[0]) for _ in range(3)] == [0, 1, 2]
    assert len(read) == loaders.ALWAYS
    assert [int(each[0]) for each in first] == list(range(3, 50))
    assert not said.warn


def test_of_those_that_differ_the_smallest_comes_then_an_ordinary_one_then_the_largest(
    said: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loaders, "CHEAP_S", 0.0)  # reading is slow
    loader = of_lengths([5, 7, 5, 6, 9, 5, *[4] * 300])
    found = lengths_of(loader)
    assert found == [4, 6] + [9] * (loaders.MOST - 2) + [4] * 106, "as many as ever"
    assert said.differ
    assert lengths_of(loader)[:3] == [9, 5, 7], "the second time nothing is looked at"
    assert not said.warn
    said.passed()
    (reported,) = said.warn
    assert "largest of the first 200 is counted, 2.25 times the middle one" in reported
    assert f"the bound assumes at most {1 + said.growth:.2f} times that in the others" in reported
    assert 0.03 < said.growth < 0.06, "106 of 306 batches were not read"
    assert not said.missed and said.ratio == 9 / 4


def test_where_reading_is_fast_all_lengths_are_read_and_nothing_is_assumed_of_others(said: Settings) -> None:
    loader = of_lengths([*[4] * 400, 5, 9])
    first = iter(loader)
    assert [len(next(first)) for _ in range(3)][2] != 9, (
        "the first four are alike, and the rest is taken to be"
    )
    loader = of_lengths([5, *[4] * 400, 9])
    assert max(lengths_of(loader)[:3]) == 9
    said.passed()
    assert any("largest of all 402 is counted" in each for each in said.warn)
    assert said.growth == 0.0


def test_of_a_largest_one_that_never_came_it_is_not_said_that_it_is_counted(said: Settings) -> None:
    loader = of_lengths([5, 7, 5, 6, 9, 5])
    batches = iter(loader)
    next(batches), next(batches)
    (reported,) = said.missed
    assert "1.50 times the middle one, is not counted" in reported and not said.warn
    next(batches)
    assert said.missed, "it may not have been trained on"
    said.passed()
    assert not said.missed and len(said.warn) == 1
    next(iter(loader))
    said.passed()
    assert not said.missed and len(said.warn) == 1


def test_an_evaluation_that_does_not_meet_its_largest_is_no_reason_to_warn(said: Settings) -> None:
    with torch.no_grad():
        next(iter(of_lengths([5, 7, 5, 6, 9, 5])))
    assert not said.missed and not said.warn


def test_the_smaller_last_batch_of_few_is_no_reason_to_warn_and_does_not_come_first(said: Settings) -> None:
    batches = [torch.zeros(8, 5), torch.zeros(8, 5), torch.zeros(3, 5)]
    assert [len(batch) for batch in DataLoader(batches, batch_size=None)] == [8, 8, 8]
    assert not said.warn
    assert lengths_of(of_lengths([])) == []


def test_looking_ends_when_its_time_is_up(said: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaders, "LOOK_S", -1.0)
    assert lengths_of(of_lengths([5, 7, 9])) == [5, 7, 9]


def test_a_script_may_take_things_out_of_a_batch(said: Settings) -> None:
    found = []
    for kind in (dict, UserDict):
        batches = [kind(ids=torch.zeros(2, n), labels=torch.zeros(2, n)) for n in (3, 4, 9, 5, 6)]
        for batch in DataLoader(batches, batch_size=None, collate_fn=lambda one: one):
            found.append(batch.pop("ids").shape[1] * ("labels" in batch))
    assert found == 2 * [3, 5, 9, 9, 9]


def test_an_iterator_shows_its_length_and_more(said: Settings) -> None:
    loader = of_lengths([5, 7, 5])
    assert len(iter(loader)) == 3
    assert iter(loader)._num_workers == 0


def test_what_is_prepared_for_workers_is_there_where_there_are_none(said: Settings) -> None:
    class Stream(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            reported = torch.utils.data.get_worker_info()
            yield from range(reported.id, 6, reported.num_workers)

    class Files(torch.utils.data.Dataset[Any]):
        opened: Any = None

        def __len__(self) -> int:
            return 6

        def __getitem__(self, n: int) -> Any:
            return self.opened[n]

    def prepare(number: int) -> None:
        torch.utils.data.get_worker_info().dataset.opened = list(range(6))
        torch.manual_seed(7)

    assert list(DataLoader(Stream(), batch_size=None, num_workers=2)) == list(range(6))
    assert list(DataLoader(Files(), batch_size=None, num_workers=2, worker_init_fn=prepare)) == list(range(6))
    assert torch.utils.data.get_worker_info() is None
    assert torch.initial_seed() != 7, "the script's own numbers are drawn as ever"


# --- how large a batch is


def test_tensors_are_found_wherever_they_lie() -> None:
    two, three = torch.zeros(2), torch.zeros(3, 3)
    graph = SimpleNamespace(_store=SimpleNamespace(x=two, name="a graph", edges={"index": three}))
    assert loaders.size_of(graph) == (((2,), (3, 3)), 11)
    assert loaders.size_of([(two, 7), {"a": [three]}, "text", None]) == (((2,), (3, 3)), 11)
    assert loaders.size_of([torch.nn.Linear(9, 9), two]) == (((2,),), 2), "a module is none of a batch"
    endless: list[Any] = [two]
    endless.append(endless)
    assert loaders.size_of(endless) == (((2,),), 2)


# --- the whole way


def test_texts_padded_in_each_batch_are_traced_at_the_longest(tmp_path: Path) -> None:
    def traced(length: str, steps: int = 400) -> tuple[SavedProfile, int]:
        source = PADDED.format(length=length).replace(
            "for batch in loader:", f"for n, batch in enumerate(loader):\n        if n == {steps}: break"
        )
        (tmp_path / "train.py").write_text(textwrap.dedent(source))
        command = [sys.executable, "-c", MAIN, "--save", "m.rad", "--json", "--", sys.executable, "train.py"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=tmp_path, check=True)
        saved = SavedProfile.from_text((tmp_path / "m.rad").read_text(), path="m.rad")
        return saved, json.loads(done.stdout)["estimate_mib"]

    growing, estimate = traced("32 + k")  # the 50th batch is the longest: 431
    alike, longest = traced("431")
    assert growing.inputs == alike.inputs == ("8x431:int64",)
    assert growing.profiles[0].seq_len == 431
    assert longest <= estimate <= 1.1 * longest
    assert "largest of all 50 is counted" in growing.warnings[0] and not alike.warnings
    short, less = traced("32 + k", steps=2)
    assert "is not counted, as the script ended before that step" in short.warnings[0] and less < estimate
