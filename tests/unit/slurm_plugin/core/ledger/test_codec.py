from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.errors import LedgerError
from slurm_plugin.core.ledger.codec import decode, encode
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.records.node import Allocation

ALLOCATIONS = st.builds(
    Allocation,
    job_id=st.integers(1, 9),
    user_id=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["shared", "whole"]),
    gpus=st.lists(st.text(min_size=1, max_size=50), min_size=1, max_size=8, unique=True).map(tuple),
    gpu_indices=st.lists(st.integers(0, 15), max_size=8).map(tuple),
    booked_bytes=st.integers(0, 2**48),
    created_s=st.floats(0, 1e9),
    cap_bytes=st.none() | st.integers(0, 2**48),
    estimate_bytes=st.none() | st.integers(0, 2**48),
    profile_key=st.none() | st.text(max_size=20),
    smact=st.none() | st.floats(0, 1),
    restart=st.integers(0, 99),
    partition=st.text(max_size=30),
    managed=st.booleans(),
)
LEDGERS = st.builds(
    Ledger,
    allocations=st.lists(ALLOCATIONS, max_size=5, unique_by=lambda allocation: allocation.job_id).map(tuple),
    last_gpu=st.none() | st.text(max_size=50),
    reconciled_s=st.none() | st.floats(0, 1e9),
)
ONE = Ledger(
    allocations=(
        Allocation(
            job_id=7,
            user_id=1000,
            kind="shared",
            gpus=("GPU-0",),
            gpu_indices=(0,),
            booked_bytes=1,
            created_s=2.0,
        ),
    )
)


@given(ledger=LEDGERS)
def test_what_is_written_is_read(ledger: Ledger) -> None:
    assert decode(encode(ledger, boot_id="b"), boot_id="b") == ledger
    assert decode(encode(ledger, boot_id="b"), boot_id="another") is None


def test_a_newer_releases_ledger_is_read() -> None:
    tree = json.loads(encode(ONE, boot_id="b"))
    tree["written_by"] = "9.0"
    tree["allocations"][0] |= {"tenant": "a", "kind": "a third of one"}
    found = decode(json.dumps(tree).encode(), boot_id="b")
    assert found is not None
    assert [(allocation.job_id, allocation.kind) for allocation in found.allocations] == [(7, "whole")]


def test_an_older_releases_ledger_is_read() -> None:
    tree = json.loads(encode(ONE, boot_id="b"))
    del tree["reconciled_s"]
    for name in (
        "managed",
        "partition",
        "smact",
        "restart",
        "profile_key",
        "estimate_bytes",
        "cap_bytes",
    ):
        del tree["allocations"][0][name]
    assert decode(json.dumps(tree).encode(), boot_id="b") == ONE


@pytest.mark.parametrize(
    "spoil",
    [
        lambda tree: tree.pop("allocations"),
        lambda tree: tree["allocations"].append(tree["allocations"][0]),
        lambda tree: tree["allocations"][0].pop("gpus"),
        lambda tree: tree["allocations"][0].pop("created_s"),
        lambda tree: tree["allocations"][0].update(gpus=[]),
        lambda tree: tree["allocations"][0].update(booked_bytes="7"),
        lambda tree: tree["allocations"][0].update(booked_bytes=-7),
        lambda tree: tree["allocations"][0].update(booked_bytes=0.5),
        lambda tree: tree["allocations"][0].update(gpus=[7]),
        lambda tree: tree["allocations"][0].update(created_s=True),
        lambda tree: tree["allocations"][0].update(created_s="2"),
        lambda tree: tree["allocations"][0].update(managed=1),
        lambda tree: tree["allocations"][0].update(estimate_bytes=0.5),
        lambda tree: tree["allocations"][0].update(smact="1"),
        lambda tree: tree["allocations"][0].update(profile_key=7),
        lambda tree: tree["allocations"][0].update(managed="no"),
        lambda tree: tree["allocations"][0].update(cap_bytes="7"),
        lambda tree: tree.update(allocations=7),
    ],
)
def test_what_is_no_ledger_is_refused(spoil: Callable[[Any], object]) -> None:
    tree = json.loads(encode(ONE, boot_id="b"))
    spoil(tree)
    with pytest.raises(LedgerError):
        decode(json.dumps(tree).encode(), boot_id="b")


def test_a_refusal_never_quotes_a_whole_ledger() -> None:
    with pytest.raises(LedgerError) as caught:
        decode(b'{"allocations": [' + b" " * 5000 + b'"\xe9"]}', boot_id="x")
    assert len(str(caught.value)) < 300


def test_a_time_beyond_all_numbers_is_none() -> None:
    text = encode(Ledger(reconciled_s=2.5), boot_id="b").replace(b"2.5", b"9" * 400)
    found = decode(text, boot_id="b")
    assert found is not None and found.reconciled_s is None
