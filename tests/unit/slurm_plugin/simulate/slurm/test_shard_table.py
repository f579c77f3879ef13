"""Slurm's count of indices agrees with plain lists."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.simulate.slurm.max_tree import MaxTree
from slurm_plugin.simulate.slurm.shard_table import ShardTable


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=20),
    st.lists(st.tuples(st.integers(0, 19), st.integers(0, 9)), max_size=10),
    st.integers(1, 9),
    st.integers(0, 21),
)
def test_the_first_place_that_is_large_enough(
    values: list[int], changes: list[tuple[int, int]], least: int, start: int
) -> None:
    tree = MaxTree(list(values))
    for place, value in changes:
        if place < len(values):
            values[place] = value
            tree.put(place, value)
    expected = next((i for i, v in enumerate(values) if i >= start and v >= least), None)
    assert tree.first(least, start) == expected
    assert tree.largest == max(values)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(1, 7)), max_size=12),
    st.integers(1, 4),
    st.integers(1, 7),
)
def test_a_job_of_several_gpus_finds_the_first_node_where_each_of_so_many_has_space(
    taken: list[tuple[int, int, int]], gpus: int, shards: int
) -> None:
    table = ShardTable(nodes=3, per_node=4, shards=8)
    used_shards = []
    for node, many, each in taken:
        if chosen := table.candidates(node, many, each)[:many]:
            table.take(tuple(chosen), each)
            used_shards.append((tuple(chosen), each))
        table.may_fit(gpus, shards)  # as called while jobs come
    for chosen, each in used_shards[::2]:
        table.give_back(chosen, each)
    roomy = [len(table.candidates(node, gpus, shards)) >= gpus for node in range(3)]
    assert table.may_fit(gpus, shards) is any(roomy)
    for start in range(4):
        first = next((node for node in range(start, 3) if roomy[node]), None)
        assert table.nodes_with_space(gpus, shards, start) == first


def test_whole_gpus_and_shards_are_kept_apart() -> None:
    table = ShardTable(nodes=2, per_node=2, shards=8)
    table.take((0,), 3)
    assert table.nodes_with_space(2, 8) == 1
    assert table.candidates(0, 1, 5) == [1, 0]
    table.take((2, 3), 8)
    assert not table.may_fit(2, 8)
    table.give_back((0,), 3)
    assert table.nodes_with_space(2, 8) == 0


def test_an_old_slurm_gives_a_shared_gpu_away_but_no_shards_of_a_whole_one() -> None:
    table = ShardTable(nodes=1, per_node=2, shards=8, apart=False)
    table.take((0,), 3)
    assert table.candidates(0, 1, 5) == [0, 1], "the first GPU is filled before the next is taken"
    table.take((0,), 2)
    assert not table.may_fit(2, 8)
    table.give_back((0,), 2)
    assert table.candidates(0, 2, 8) == [0, 1], "one has gone, so that shards in use do not count"
    assert table.candidates(0, 1, 8) == [1], "a job that requests all shards of a GPU is never next to others"
    table.take((0, 1), 8)
    assert not table.may_fit(1, 1) and not table.may_fit(1, 8)
    table.give_back((0, 1), 8)
    assert table.free_shards(0, 1, 1) == 5
