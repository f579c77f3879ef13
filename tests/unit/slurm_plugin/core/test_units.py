from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.units import (
    GIB,
    KIB,
    MIB,
    human,
    parse_size,
    printed_size,
    shards_for,
    to_mib_down,
    to_mib_up,
)


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("12G", 12 * GIB),
        ("1.5g", 1536 * MIB),
        ("300", 300 * MIB),
        (" 512M ", 512 * MIB),
        ("12GiB", 12 * GIB),
        ("12 GB", 12 * GIB),
        ("2T", 2048 * GIB),
        ("64K", 64 * KIB),
        ("300B", 300),
        ("1,024 bytes", 1024),
        ("34,359,738,368 bytes", 32 * GIB),
    ],
)
def test_every_spelling_of_a_size(text: str, n_bytes: int) -> None:
    assert parse_size(text) == n_bytes


@pytest.mark.parametrize(
    "text", ["", "G", "-1G", "1,5G", "1e3", "0", "0.0001K", "12 X", "1.2.3G", "９G", "9" * 16]
)
def test_what_is_no_size_is_one_line(text: str) -> None:
    with pytest.raises(ValueError, match="write"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("2.50 GiB", 2560 * MIB),
        ("20 MB", 20 * MIB),
        ("1024bytes", 1024),
        ("7", 7),
        (None, None),
        ("some", None),
    ],
)
def test_a_printed_size_counts_bytes_where_it_names_no_unit(text: str | None, n_bytes: int | None) -> None:
    assert printed_size(text) == n_bytes


@given(st.integers(0, 1 << 50))
def test_rounding_says_its_direction(n_bytes: int) -> None:
    assert to_mib_down(n_bytes) * MIB <= n_bytes <= to_mib_up(n_bytes) * MIB
    assert to_mib_up(n_bytes) - to_mib_down(n_bytes) == (n_bytes % MIB > 0)


@given(st.integers(0, 1 << 45), st.integers(1, 1 << 35))
def test_shards_hold_what_they_are_requested_for(n_bytes: int, shard_bytes: int) -> None:
    shards = shards_for(n_bytes, shard_bytes)
    assert shards >= 1
    assert shards * shard_bytes >= n_bytes
    assert shards == 1 or (shards - 1) * shard_bytes < n_bytes


def test_what_people_read() -> None:
    assert (human(1), human(812 * MIB), human(GIB), human(12 * GIB + 300 * MIB)) == (
        "1 MiB",
        "812 MiB",
        "1.0 GiB",
        "12.3 GiB",
    )
