from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.node.time_extension import EARLY_S, MINUTE_S, Granted, more_minutes

HOUR_S = 3600.0
ENDLESS = float("inf")


@pytest.mark.parametrize(
    ("granted", "shared_s", "left_s", "factor", "margin_s", "minutes"),
    [
        (Granted(requested_s=HOUR_S), 1800.0, 200.0, 2.0, ENDLESS, 30),
        (Granted(requested_s=HOUR_S), 1801.0, 200.0, 2.0, ENDLESS, 31),
        (Granted(requested_s=HOUR_S), 1800.0, 301.0, 2.0, ENDLESS, 0),
        (Granted(requested_s=HOUR_S, granted_s=1800.0), 1800.0, 200.0, 2.0, ENDLESS, 0),
        (Granted(requested_s=HOUR_S, granted_s=1800.0), 2400.0, 200.0, 2.0, ENDLESS, 10),
        (Granted(requested_s=HOUR_S), 9000.0, 200.0, 2.0, ENDLESS, 60),
        (Granted(requested_s=HOUR_S), 9000.0, 200.0, 1.0, ENDLESS, 0),
        (Granted(requested_s=HOUR_S), 1800.0, 200.0, 2.0, 299.0, 4),
        (Granted(requested_s=HOUR_S), 1800.0, 200.0, 2.0, -60.0, 0),
    ],
    ids=[
        "shared for half",
        "whole minutes",
        "not yet",
        "has it",
        "the rest",
        "twice at most",
        "off",
        "room",
        "none",
    ],
)
def test_what_sharing_cost_is_given_back(
    granted: Granted, shared_s: float, left_s: float, factor: float, margin_s: float, minutes: int
) -> None:
    assert (
        more_minutes(granted, shared_s=shared_s, left_s=left_s, factor=factor, margin_s=margin_s) == minutes
    )


@given(
    requested_min=st.integers(1, 10_000),
    factor=st.floats(1.0, 5.0),
    looks=st.lists(st.tuples(st.integers(0, 30), st.floats(0.0, 3600.0)), max_size=40),
)
def test_no_user_gets_more_than_its_share_or_than_the_factor(
    requested_min: int, factor: float, looks: list[tuple[int, float]]
) -> None:
    requested_s = float(requested_min * MINUTE_S)
    granted, shared_s = Granted(requested_s=requested_s), 0.0
    for more_s, left_s in looks:
        shared_s += more_s
        minutes = more_minutes(granted, shared_s=shared_s, left_s=left_s, factor=factor, margin_s=ENDLESS)
        assert minutes == 0 or left_s <= EARLY_S
        granted = Granted(requested_s=requested_s, granted_s=granted.granted_s + minutes * MINUTE_S)
        assert granted.granted_s < shared_s + MINUTE_S
        assert granted.granted_s <= (factor - 1) * requested_s
