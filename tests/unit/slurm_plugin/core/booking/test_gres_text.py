from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.booking.gres_text import count_of, others, parse_gres
from slurm_plugin.core.errors import WireError
from slurm_plugin.core.records.submission import GresItem


@pytest.mark.parametrize(
    ("text", "items"),
    [
        (None, ()),
        ("", ()),
        ("gpu", (GresItem(name="gpu"),)),
        ("gres:gpu:2", (GresItem(name="gpu", count=2),)),
        ("gres/gpu=2", (GresItem(name="gpu", count=2),)),
        ("gres/gpu:a100:2", (GresItem(name="gpu", type="a100", count=2),)),
        ("gpu:a100", (GresItem(name="gpu", type="a100"),)),
        ("shard:1K", (GresItem(name="shard", count=1024),)),
        ("shard:4(IDX:0)", (GresItem(name="shard", count=4),)),
        ("cpu=4,gres/gpu=1", (GresItem(name="cpu", count=4), GresItem(name="gpu"))),
    ],
)
def test_every_spelling_is_read(text: str | None, items: tuple[GresItem, ...]) -> None:
    assert parse_gres(text) == items


def test_other_parts_are_kept_as_written() -> None:
    assert others("gres:gpu:1,gres:nvme:a:3", keep_prefix=False) == "nvme:a:3"
    assert others("cpu=4,gres/gpu=1,gres/nvme=3", keep_prefix=True) == "cpu=4,gres/nvme=3"
    assert others(None, keep_prefix=True) == ""
    assert others("NONE", keep_prefix=False) == others("gres:none", keep_prefix=False) == ""


SPELLINGS = (
    "gres:{}:{}:{}",
    "gres/{}:{}:{}",
    "gres/{}:{}={}",
    "{}:{}:{}",
    "{}:{}:{}(IDX:0-1)",
    "{}:{}:{}(S:0)",
)
NAMES = st.sampled_from(["gpu", "shard", "nvme"])


@given(
    st.lists(
        st.tuples(st.sampled_from(SPELLINGS), NAMES, st.sampled_from(["a100", "h200"]), st.integers(0, 10**6))
    )
)
def test_a_count_is_the_sum_over_all_spellings_and_types(parts: list[tuple[str, str, str, int]]) -> None:
    text = ",".join(spelling.format(name, kind, count) for spelling, name, kind, count in parts)
    if len(text) > 4096:
        return
    items = parse_gres(text)
    for wanted in ("gpu", "shard", "nvme"):
        assert count_of(items, wanted) == sum(count for _, name, _, count in parts if name == wanted)
    assert [part.rsplit("(")[0] for part in text.split(",") if "nvme" in part] == [
        part for part in others(text, keep_prefix=True).split(",") if part
    ]


@given(st.text(max_size=200))
def test_any_text_gives_one_item_for_each_part(text: str) -> None:
    items = parse_gres(text)
    assert len(items) <= text.count(",") + 1
    assert all(item.count >= 0 for item in items)


def test_an_endless_request_is_refused() -> None:
    with pytest.raises(WireError):
        parse_gres("gpu:1," * 1000)
