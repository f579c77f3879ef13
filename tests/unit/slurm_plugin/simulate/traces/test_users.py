"""Users of simulated jobs: how they are dealt out, which MPS server they share, and what that costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.simulate.command import simulate
from slurm_plugin.simulate.gpus.interference import LONGEST_SLOWDOWN, Load, slowdowns
from slurm_plugin.simulate.question import SimulationQuestion
from slurm_plugin.simulate.scenario import scenario
from slurm_plugin.simulate.traces.read import read_trace
from slurm_plugin.simulate.traces.users import USERS_PER_ACCOUNT, user_ids, with_users

HEADER = "arrival_s,workload,gpus,duration_min,mem_mib"
ROWS = [f"{60 * k},{('vgg3', 'resnet2', 'never measured')[k % 3]},1,{20 + k % 7},900" for k in range(24)]
SERVERS = st.sampled_from(["", "1000", "1001", "all"])
LOADS = st.builds(
    Load,
    smact=st.floats(0, 0.95),
    busy=st.floats(0.0, 1),
    duty=st.floats(0, 1),
    halves=st.booleans(),
    server=SERVERS,
)
CLIENTS = st.builds(Load, smact=st.floats(0, 0.95), busy=st.floats(0.02, 1), server=SERVERS)


def question(
    tmp_path: Path, columns: str = "", values: tuple[str, ...] = ("",), **changes: Any
) -> SimulationQuestion:
    path = tmp_path / "t.csv"
    rows = [f"{row}{values[k % len(values)]}" for k, row in enumerate(ROWS)]
    path.write_text("\n".join([HEADER + columns, *rows]) + "\n")
    settings = PartitionConfig(share_multi_gpu=True, mps_server=changes.pop("mps_server", "user"))
    return SimulationQuestion(
        trace=path, nodes=1, gpus_per_node=2, gpu_memory_mib=40_000, settings=settings, pin="bound", **changes
    )


def figures(simulated: SimulationQuestion) -> dict[str, Any]:
    found = simulate(simulated, SystemClock())
    del found["simulated_in_s"]
    return found


@given(st.lists(LOADS, max_size=7), SERVERS)
def test_one_server_is_one_user_whatever_its_name(loads: list[Load], server: str) -> None:
    unnamed = [replace(load, server="") for load in loads]
    assert slowdowns([replace(load, server=server) for load in loads]) == slowdowns(unnamed)


@given(st.lists(LOADS, max_size=7), st.permutations(range(7)))
def test_the_order_of_jobs_does_not_matter(loads: list[Load], order: list[int]) -> None:
    order = [k for k in order if k < len(loads)]
    found, again = slowdowns(loads), slowdowns([loads[k] for k in order])
    assert again == pytest.approx([found[k] for k in order], rel=0.01)


@given(st.lists(CLIENTS, min_size=1, max_size=7))
def test_servers_that_take_turns_make_no_job_faster_than_alone_or_endlessly_slow(loads: list[Load]) -> None:
    for factor in slowdowns(loads):
        assert 1.0 <= factor <= LONGEST_SLOWDOWN**2


@given(st.lists(CLIENTS, min_size=1, max_size=6), st.floats(0, 0.95))
def test_a_job_without_work_yet_changes_nothing(loads: list[Load], smact: float) -> None:
    starts = Load(smact=smact, busy=0.0, server="of an incoming job")
    assert slowdowns([*loads, starts])[:-1] == slowdowns(loads)


def test_jobs_of_several_users_are_slower_than_jobs_of_one_user() -> None:
    busy = Load(smact=0.5, busy=0.9)
    together, apart = (slowdowns([replace(busy, server=name) for name in names]) for names in ("aa", "ab"))
    assert apart[0] == apart[1] == pytest.approx(2 * 0.9 / 0.91)
    assert together[0] < 1.4 < apart[0]


def test_one_user_gives_the_figures_of_a_trace_without_users(tmp_path: Path) -> None:
    before = figures(question(tmp_path))
    assert figures(question(tmp_path, users=1)) == before
    assert figures(question(tmp_path, users=1, seed=3, mps_server="gpu")) == before
    assert figures(question(tmp_path, ",user,account", (",ann,lab",))) == before


@pytest.mark.parametrize("baseline", ["rad", "whole"])
def test_many_users_with_one_server_a_gpu_give_the_figures_of_one_user(tmp_path: Path, baseline: str) -> None:
    before = figures(question(tmp_path, baseline=baseline))
    assert figures(question(tmp_path, users=7, mps_server="gpu", baseline=baseline)) == before
    assert (figures(question(tmp_path, users=7, baseline=baseline)) == before) == (baseline == "whole")


def test_users_of_one_account_share_a_server_where_accounts_do(tmp_path: Path) -> None:
    users = (",ann,lab", ",bob,lab", ",cy,lab")
    one = figures(question(tmp_path))
    assert figures(question(tmp_path, ",user,account", users, mps_server="account")) == one
    apart = figures(question(tmp_path, ",user,account", users))
    assert apart["mean_completion_s"] > one["mean_completion_s"]
    without = figures(question(tmp_path, ",user", (",ann", ",bob", ",cy"), mps_server="account"))
    assert without == apart, "without accounts the user counts"


def test_without_rad_each_user_has_a_server(tmp_path: Path) -> None:
    """`mps_server` is a setting of RAD's: jobs that share by hand do not know it."""
    questions = [question(tmp_path, users=6, baseline="hand", mps_server=scope) for scope in ("user", "gpu")]
    assert figures(questions[0]) == figures(questions[1])


def test_jobs_are_dealt_out_to_users_in_accounts(tmp_path: Path) -> None:
    trace = with_users(read_trace(question(tmp_path).trace), 2 * USERS_PER_ACCOUNT, 1)
    assert len({job.user for job in trace.jobs}) == len(set(user_ids(trace))) == 2 * USERS_PER_ACCOUNT
    assert {job.account for job in trace.jobs} == {"account1", "account2"}
    again = with_users(read_trace(question(tmp_path).trace), 2 * USERS_PER_ACCOUNT, 2)
    assert trace != again
    found = scenario(question(tmp_path, users=8, seed=1))
    assert [job.user_id for job in found.jobs] == list(user_ids(trace))
