from __future__ import annotations

from pathlib import Path

from gpumemnet.learning.dataset.pack import pack
from gpumemnet.learning.dataset.splits import near_twins
from gpumemnet.learning.dataset.store import (
    HELDOUT_ROWS,
    TRAINING_ROWS,
    appender,
    done_keys,
    read_records,
    write_records,
)


def row(index: int, **more: object) -> dict[str, object]:
    return {
        "seed": 1,
        "index": index,
        "outcome": "ok",
        "alone": False,
        "neighbours": 3,
        "step_time_s": 0.5,
    } | more


def test_what_is_appended_is_read_again_and_a_cut_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "raw.jsonl"
    append = appender(path)
    append({"session": True, "gpu": "H200"})
    append(row(4))
    with path.open("a") as out:
        out.write('{"seed": 1, "ind')
    assert len(list(read_records(path))) == 2
    assert done_keys([path, tmp_path / "missing"]) == {(1, 4, 0)}


def test_compressed_records_are_the_same_records(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl.xz"
    assert write_records(path, [row(1), row(2)]) == 2
    assert list(read_records(path)) == [row(1), row(2)]


def test_pack_keeps_successes_and_out_of_memory_once_each() -> None:
    session = {"session": True, "gpu": "H200", "slots": 14}
    first = [session, row(2), row(1), row(3, outcome="error"), row(4, outcome="oom", need_above_bytes=9)]
    alone = [session, row(1, alone=True, smact_pct=40.0, step_time_s=0.1)]
    packed = pack([first, alone])
    assert [r["index"] for r in packed] == [1, 2, 4]
    assert packed[0]["smact_pct"] == 40.0
    assert packed[0]["step_time_s"] == 0.1
    assert packed[1]["step_time_s"] is None, "a step next to neighbours says nothing about the model"
    assert packed[2]["outcome"] == "oom"
    assert all(r["gpu"] == "H200" and "neighbours" not in r and "slots" not in r for r in packed)


def test_pack_leaves_out_what_an_earlier_row_left_in_the_process() -> None:
    session = {"session": True, "gpu": "H200"}
    grown = row(1, runs_before=3, base_bytes=1160 << 20)
    usual = row(2, runs_before=3, base_bytes=760 << 20)
    own = row(3, runs_before=0, base_bytes=1160 << 20)
    assert [r["index"] for r in pack([[session, grown, usual, own]])] == [2, 3]


def test_the_kept_rows_are_sound() -> None:
    rows = list(read_records(TRAINING_ROWS))
    good = [r for r in rows if r["outcome"] == "ok"]
    assert len({(r["seed"], r["index"], r["variant"]) for r in rows}) == len(rows)
    for r in good:
        assert r["process_peak_bytes"] >= r["reserved_peak_bytes"] >= r["allocated_peak_bytes"] > 0
        assert r["steps"] - r["skipped_steps"] >= 3
        # A few convolutions load libraries of 400 MiB, one of a gigabyte, into the process.
        assert 500 << 20 < r["base_bytes"] < 1800 << 20 or r["num_alloc_retries"] > 0
    assert all(
        "process_peak_bytes" not in r and r["need_above_bytes"] > 0 for r in rows if r["outcome"] == "oom"
    )


def test_no_kept_row_is_a_near_twin_of_a_held_out_model() -> None:
    heldout = list(read_records(HELDOUT_ROWS))
    assert len(heldout) >= 120
    assert all(set(r["texts"]) >= {"module_repr", "torchinfo"} for r in heldout)
    assert near_twins(read_records(TRAINING_ROWS), heldout) == []


def test_a_twin_would_be_found() -> None:
    real = [{"outcome": "ok", "params": 25_557_032, "param_tensors": 161}]
    twin = {"outcome": "ok", "params": 25_600_000, "param_tensors": 161}
    other = {"outcome": "ok", "params": 25_600_000, "param_tensors": 90}
    assert near_twins([twin, other], real) == [twin]
