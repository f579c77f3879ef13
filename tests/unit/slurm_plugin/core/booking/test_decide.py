from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from slurm_plugin.core.booking.decide import decide
from slurm_plugin.core.booking.gres_text import count_of, parse_gres
from slurm_plugin.core.booking.request import request_from
from slurm_plugin.core.booking.size import part_for
from slurm_plugin.core.booking.verification import MOST_PARTITIONS, partition_mark
from slurm_plugin.core.config.load import Config, parse_config
from slurm_plugin.core.records.submission import Booking, MemoryEstimate, Rewrite, UserDirectives
from slurm_plugin.core.units import GIB, MIB

GPU_MIB = 40_000
SHARDS = 39  # 40,000 MiB hold 39 shards of 1,024
HERE = (partition_mark("gpu"),)


def config(mode: str = "enforce", **partition: Any) -> Config:
    """Return rad.toml with these settings of the partition; memory alone counts unless they say otherwise."""
    settings = {"collocate": True, "gpu_memory_mib": GPU_MIB, "compute_overcommit": 0.0, **partition}
    tree = {"mode": mode, "default_partition": "gpu", "partition": {"gpu": settings, "plain": {}}}
    return parse_config(tree, origin="rad.toml")


def need(estimate_bytes: int, upper_bytes: int | None = None) -> MemoryEstimate:
    return MemoryEstimate(
        estimate_bytes=estimate_bytes,
        upper_bytes=upper_bytes or estimate_bytes,
        confidence=0.99,
        source="rad",
        profile_key="ab12",
    )


def decided(
    stated: UserDirectives | None = None,
    estimate: MemoryEstimate | None = None,
    *,
    config: Config = config(),  # noqa: B008 frozen
    whole_as_gpu: bool = False,
    max_shard_gpus: int = 0,
    **message: Any,
) -> Rewrite:
    request = request_from({"user_id": 1000, **message})
    return decide(
        request,
        stated or UserDirectives(),
        estimate,
        config=config,
        whole_as_gpu=whole_as_gpu,
        max_shard_gpus=max_shard_gpus,
    )


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"gres": "gres:gpu:1", "partition": "plain"}, "not our partition"),
        ({"gres": "gres:gpu:1", "partition": "elsewhere"}, "not our partition"),
        ({"gres": "gres:gpu:1", "partition": "gpu,plain"}, "not our partition"),
        ({"gres": "gres:gpu:1,gres:shard:2"}, "gpu and shards"),
    ],
)
def test_what_is_not_rads_is_left_alone(message: dict[str, Any], reason: str) -> None:
    assert decided(UserDirectives(memory_bytes=GIB), need(GIB), **message) == Rewrite(reason=reason)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"gres": "gres:gpu:1", "heterogeneous": True}, "each gets what it requests"),
        ({"heterogeneous": True}, "each gets what it requests"),
        ({"gres": "gres:gpu:1", "min_nodes": 2}, "cannot share GPUs; the job gets whole GPUs"),
        ({"gres": "gres/gpu:1g.10gb:1"}, "a MIG instance cannot be shared"),
    ],
)
def test_a_job_that_cannot_share_is_left_alone_and_reported_if_it_spoke(
    message: dict[str, Any], words: str
) -> None:
    silent = decided(**message)
    any_stated = decided(UserDirectives(memory_bytes=GIB), need(GIB), **message)
    assert (silent.fields, silent.booking, silent.messages) == ({}, None, ())
    assert replace(any_stated, messages=()) == silent
    assert words in any_stated.messages[0]


def test_several_processes_that_fill_a_gpu_are_counted_in_the_message() -> None:
    rewrite = decided(
        UserDirectives(memory_bytes=12 * GIB), stated_need(12 * GIB), gres="gres:gpu:1", num_tasks=4
    )
    assert "its 4 processes together may need 48.0 GiB of " in rewrite.messages[0]


def test_a_stated_need_that_is_too_large_is_not_advised_to_try_it() -> None:
    rewrite = decided(UserDirectives(memory_bytes=120 * GIB), stated_need(120 * GIB), gres="gres:gpu:1")
    assert rewrite.refusal is not None and "exclusive" not in rewrite.refusal
    assert "requested 120.0 GiB, and one GPU has" in rewrite.refusal and "correct memory=" in rewrite.refusal


def stated_need(n_bytes: int) -> MemoryEstimate:
    return replace(need(n_bytes), upper_bytes=n_bytes, source="stated", quantiles=())


@pytest.mark.parametrize("gres", ["gres:gpu:1", "gres:shard:3"])
def test_an_entry_of_scrontab_shares_no_gpu_by_our_choice_and_is_not_run_again_by_us(gres: str) -> None:
    """Slurm runs it again at its next time, under the same id, and counts a restart each time."""
    rewrite = decided(UserDirectives(memory_bytes=GIB), need(GIB), gres=gres, recurs=True)
    assert rewrite.booking is not None and not rewrite.booking.retry
    assert "gres" not in rewrite.fields, "it keeps what it requests"
    assert rewrite.booking.kind == ("whole" if "gpu" in gres else "shared")
    assert "gpu" not in gres or "scrontab requires a whole GPU" in rewrite.messages[0]


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ({}, {"pn_min_cpus": "4"}),
        ({"pn_min_cpus": 6}, {"pn_min_cpus": "6"}),
        ({"num_tasks": 1}, {"cpus_per_task": "4", "min_cpus": "4"}),
        ({"num_tasks": 1, "pn_min_cpus": 6}, {"cpus_per_task": "6", "min_cpus": "6"}),
        ({"num_tasks": 4}, {}),
    ],
)
def test_the_cpus_of_a_gpu_are_requested_by_node_or_by_stated_task(
    message: dict[str, Any], fields: dict[str, str]
) -> None:
    cpus = {"gres": "gres:gpu:1", "cpus_per_tres": "gres:gpu:4"}
    rewrite = decided(UserDirectives(memory_bytes=GIB), need(GIB), **cpus, **message)
    found = {name: value for name, value in rewrite.fields.items() if "cpus" in name}
    assert found == {"cpus_per_tres": "", **fields}


def test_several_tasks_of_one_gpu_stay_on_its_node() -> None:
    rewrite = decided(UserDirectives(memory_bytes=GIB), need(GIB), tres_per_job="gres:gpu:1", num_tasks=2)
    assert (rewrite.fields["min_nodes"], rewrite.fields["max_nodes"]) == ("1", "1")


@pytest.mark.parametrize(
    "message",
    [
        {"max_nodes": 2},
        {"features": "[a*1&b*1]"},
        {"num_tasks": 2, "ntasks_per_node": 1},
        {"num_tasks": 40, "cpus_of_node": 32},
    ],
)
def test_a_job_that_may_get_several_nodes_is_left_alone(message: dict[str, Any]) -> None:
    rewrite = decided(UserDirectives(memory_bytes=GIB), need(GIB), tres_per_job="gres:gpu:1", **message)
    assert (rewrite.fields, rewrite.reason) == ({}, "multi-node")


@pytest.mark.parametrize("message", [{}, {"gres": "gres:nvme:100"}, {"tres_per_job": "gres:gpu:0"}])
def test_a_job_without_gpu_is_left_alone_and_reported_if_it_spoke(message: dict[str, Any]) -> None:
    assert decided(**message) == Rewrite(reason="no gpu")
    any_stated = decided(UserDirectives(memory_bytes=GIB), need(GIB), **message)
    assert (any_stated.fields, any_stated.booking) == ({}, None)
    assert "--gpus=1" in any_stated.messages[0]


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ({"gres": "gres:gpu:1"}, {"gres": "shard:10"}),
        ({"gres": "gres/gpu=1"}, {"gres": "shard:10"}),
        ({"gres": "gres:gpu"}, {"gres": "shard:10"}),
        ({"gres": "gres/gpu:1,gres/nvme:100"}, {"gres": "nvme:100,shard:10"}),
        (
            {"tres_per_job": "gres:gpu:1"},
            {"gres": "shard:10", "tres_per_job": ""},
        ),
        (
            {"tres_per_task": "cpu=4,gres/gpu=1", "num_tasks": 1},
            {"gres": "shard:10", "tres_per_task": "cpu=4"},
        ),
        (
            {"gres": "gres:gpu:1", "cpus_per_tres": "gres:gpu:4", "mem_per_tres": "gres:gpu:2048"},
            {
                "gres": "shard:10",
                "cpus_per_tres": "",
                "pn_min_cpus": "4",
                "mem_per_tres": "",
                "min_mem_per_node": "2048",
            },
        ),
        ({"gres": "gres:gpu:1", "tres_bind": "gres:gpu:closest"}, {"gres": "shard:10", "tres_bind": ""}),
    ],
)
def test_one_gpu_in_every_spelling_becomes_shards(message: dict[str, Any], changes: dict[str, str]) -> None:
    rewrite = decided(UserDirectives(memory_bytes=10 * GIB), need(9 * GIB, 10 * GIB), **message)
    assert rewrite.fields == changes
    assert rewrite.environment["SLURM_GPUS"] == ""
    assert rewrite.booking == Booking(
        kind="shared",
        memory_bytes=10 * GIB,
        estimate_bytes=9 * GIB,
        profile_key="ab12",
        basis="estimate",
        shards=10,
        partitions=HERE,
        by_node="gpu" in message.get("gres", ""),
    )


def test_an_exclusive_job_takes_all_shards_or_keeps_its_gpu() -> None:
    stated = UserDirectives(policy="exclusive")
    by_shards = decided(stated, need(GIB), gres="gres:gpu:1")
    assert (by_shards.fields, by_shards.booking) == (
        {"gres": f"shard:{SHARDS}"},
        Booking(
            kind="whole",
            estimate_bytes=GIB,
            profile_key="ab12",
            basis="estimate",
            shards=SHARDS,
            partitions=HERE,
        ),
    )
    by_gpu = decided(stated, need(GIB), gres="gres:gpu:1", whole_as_gpu=True)
    assert by_shards.booking is not None
    assert (by_gpu.fields, by_gpu.environment) == ({}, {})
    assert by_gpu.booking == replace(by_shards.booking, shards=0)


@pytest.mark.parametrize(
    ("default", "fields"), [("exclusive", f"shard:{SHARDS}"), ("leave", None), ("collocate", "shard:5")]
)
def test_a_job_that_says_nothing_gets_the_partitions_default(default: str, fields: str | None) -> None:
    rewrite = decided(gres="gres:gpu:1", config=config(default=default))
    assert rewrite.fields.get("gres") == fields
    assert rewrite.messages == ()


def test_collocation_requested_with_an_unknown_need_books_the_least_free_memory() -> None:
    rewrite = decided(UserDirectives(policy="collocate"), gres="gres:gpu:1")
    assert rewrite.booking == Booking(kind="shared", memory_bytes=5 * GIB, shards=5, partitions=HERE)


def test_a_need_of_nearly_all_of_a_gpu_is_exclusive() -> None:
    rewrite = decided(UserDirectives(memory_bytes=39 * GIB), need(38 * GIB, 38 * GIB + 1), gres="gres:gpu:1")
    assert rewrite.booking is not None
    assert (rewrite.booking.kind, rewrite.refusal) == ("whole", None)


def test_the_bound_may_exceed_the_gpu_but_the_best_guess_may_not() -> None:
    assert decided(estimate=need(GPU_MIB * MIB, 50 * GIB), gres="gres:gpu:1").refusal is None
    refusal = decided(estimate=need(60 * GIB, 70 * GIB), gres="gres:gpu:1").refusal
    assert refusal is not None
    assert "60.0 GiB" in refusal and "39.1 GiB" in refusal and "--gpus=2" in refusal
    assert "policy=exclusive" in refusal


def test_a_user_that_overrules_the_estimate_gets_the_requested_gpu() -> None:
    alone = decided(UserDirectives(policy="exclusive"), need(60 * GIB, 70 * GIB), gres="gres:gpu:1")
    assert alone.booking is not None
    assert (alone.refusal, alone.booking.kind, alone.fields["gres"]) == (None, "whole", f"shard:{SHARDS}")


def test_several_processes_on_one_gpu_add_up() -> None:
    rewrite = decided(UserDirectives(memory_bytes=4 * GIB), need(4 * GIB), gres="gres:gpu:1", num_tasks=3)
    assert rewrite.fields["gres"] == "shard:12"
    said = decided(UserDirectives(gpus=2), need(4 * GIB), gres="gres:gpu:1")
    assert said.booking is not None
    assert (said.fields["gres"], said.booking.estimate_bytes) == ("shard:8", 8 * GIB)


@pytest.mark.parametrize(
    ("reported", "processes"),
    [
        ({"num_tasks": 4294967294, "ntasks_per_node": 2}, 2),  # as Slurm 24.11 and 26.05 tell it
        ({"num_tasks": 2, "ntasks_per_node": 2}, 2),  # and 22.05
        ({"num_tasks": 1, "ntasks_per_node": 2}, 1),  # with -n it is a limit
        ({"num_tasks": 4294967294, "ntasks_per_node": 65534}, 1),
    ],
)
def test_tasks_that_are_requested_by_node_count(reported: dict[str, int], processes: int) -> None:
    rewrite = decided(UserDirectives(memory_bytes=4 * GIB), need(4 * GIB), gres="gres:gpu:1", **reported)
    assert rewrite.fields["gres"] == f"shard:{4 * processes}"


def test_several_gpus_keep_their_request_and_are_booked_whole() -> None:
    rewrite = decided(UserDirectives(gpus=4), need(GIB), tres_per_job="gres:gpu:4")
    assert (rewrite.fields, rewrite.booking) == (
        {},
        Booking(
            kind="whole", gpus=4, estimate_bytes=GIB, profile_key="ab12", basis="estimate", partitions=HERE
        ),
    )
    assert rewrite.messages == (
        "RAD: jobs with several GPUs do not share them in this partition; the job gets whole GPUs",
    )
    wanted = decided(UserDirectives(gpus=4, policy="exclusive"), need(GIB), tres_per_job="gres:gpu:4")
    assert wanted.messages == (), "it is what was requested"
    silent = decided(UserDirectives(), need(GIB), tres_per_job="gres:gpu:4")
    assert silent.messages == (), "a job without directives gets no message"
    assert "gpus=2" in decided(UserDirectives(gpus=2), tres_per_job="gres:gpu:4").messages[0]
    assert (
        "run out of memory" in decided(UserDirectives(gpus=4), need(60 * GIB), gres="gres:gpu:4").messages[0]
    )


def test_gpus_per_task_counts_by_tasks() -> None:
    rewrite = decided(tres_per_task="gres:gpu:1", num_tasks=4)
    assert rewrite.booking == Booking(kind="whole", gpus=4, partitions=HERE)


@pytest.mark.parametrize(
    "message",
    [
        {"gres": "gres:gpu:1", "tres_freq": "gpu:high"},
        {"gres": "gres:gpu:1", "ntasks_per_gpu": 2},
        {"gres": "gres:gpu:1", "container": "/home/u/bundle"},
        {"gres": "gres:gpu:1", "reserves_parts": True},
        {"gres": "gres:gpu:a100:1"},
        {"tres_per_socket": "gres:gpu:1"},
        {"gres": "gres:gpu:1", "whole_nodes": True},
        {"tres_per_job": "gres:gpu:1,gres:nvme:5"},
    ],
)
def test_what_shards_cannot_stand_for_keeps_its_gpu(message: dict[str, Any]) -> None:
    rewrite = decided(UserDirectives(memory_bytes=GIB), need(GIB), **message)
    assert rewrite.fields == {}
    assert rewrite.booking is not None and rewrite.booking.kind == "whole"
    assert "gets a whole GPU" in rewrite.messages[0]


def test_the_partitions_own_gpu_type_is_dropped() -> None:
    rewrite = decided(estimate=need(GIB), gres="gres:gpu:a100:1", config=config(gpu_type="a100"))
    assert rewrite.fields == {"gres": "shard:1"}


def test_not_set_values_of_slurm_count_as_nothing() -> None:
    rewrite = decided(
        estimate=need(GIB),
        gres="gres:gpu:1",
        num_tasks=0xFFFFFFFE,
        min_nodes=0xFFFFFFFE,
        ntasks_per_gpu=0xFFFE,
    )
    assert rewrite.fields == {"gres": "shard:1"}


def test_an_srun_that_was_not_rewritten_in_time_keeps_its_gpu() -> None:
    rewrite = decided(UserDirectives(memory_bytes=GIB), need(GIB), gres="gres:gpu:1", interactive=True)
    assert (rewrite.fields, rewrite.messages) == ({}, ())
    assert rewrite.booking is not None and rewrite.booking.kind == "whole"


def test_shards_of_whole_nodes_are_refused_as_slurm_would_never_start_them() -> None:
    refusal = decided(gres="gres:shard:4", whole_nodes=True).refusal
    assert refusal is not None and "--exclusive" in refusal


def test_own_shards_are_kept_and_too_many_refused() -> None:
    kept = decided(estimate=need(2 * GIB), gres="gres:shard:4")
    assert (kept.fields, kept.booking) == (
        {},
        Booking(
            kind="shared",
            memory_bytes=4 * GIB,
            estimate_bytes=2 * GIB,
            profile_key="ab12",
            shards=4,
            partitions=HERE,
        ),
    )
    assert "shard:8" in decided(estimate=need(8 * GIB), gres="gres:shard:4").messages[0]
    surprised = replace(need(3 * GIB, 6 * GIB), quantiles=((0.95, 4 * GIB), (0.99, 6 * GIB)))
    assert decided(estimate=surprised, gres="gres:shard:4").messages == (), (
        "as many as would be booked: 4 are enough"
    )
    refusal = decided(gres=f"gres:shard:{SHARDS + 1}").refusal
    assert refusal is not None and f"at most {SHARDS}" in refusal


def test_observe_and_off_change_nothing() -> None:
    observed = decided(estimate=need(GIB), gres="gres:gpu:1", config=config("observe"))
    assert observed == Rewrite(reason="observe: shared shard:1")
    assert decided(estimate=need(GIB), gres="gres:gpu:1", config=config("off")) == Rewrite(reason="off")


COUNT = st.integers(1, 4)
GPU_TEXT = st.builds(
    lambda prefix, kind, count: f"{prefix}{kind}{count}",
    st.sampled_from(["gres:", "gres/", ""]),
    st.sampled_from(["gpu:", "gpu:a100:", "gpu=", "shard:", "gpu:1g.10gb:"]),
    st.integers(1, 45),
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "gres": GPU_TEXT | st.just("gres:gpu:1"),
        "tres_per_job": GPU_TEXT | st.just("gres:gpu:1"),
        "tres_per_task": st.just("gres:gpu:1"),
        "tres_per_socket": st.just("gres:gpu:1"),
        "cpus_per_tres": st.just("gres:gpu:3"),
        "mem_per_tres": st.just("gres:gpu:100"),
        "num_tasks": COUNT | st.just(0xFFFFFFFE),
        "min_nodes": COUNT | st.just(0xFFFFFFFE),
        "interactive": st.booleans(),
        "heterogeneous": st.booleans(),
        "comment": st.text(max_size=20),
    },
)
CLAIMS = st.builds(
    UserDirectives,
    memory_bytes=st.none(),
    policy=st.sampled_from([None, "exclusive", "collocate"]),
    retry=st.booleans(),
    gpus=st.none() | COUNT,
)
ESTIMATES = st.none() | st.builds(
    lambda estimate, extra: need(estimate, estimate + extra),
    st.integers(1, 80 * GIB),
    st.integers(0, 20 * GIB),
)
KINDS = {"a100": {"gpu_memory_mib": 30_000}, "h200": {"gpu_memory_mib": 140_000}}
CONFIGS = st.builds(
    lambda default, shard_mib, types: config(default=default, shard_mib=shard_mib, **types),
    st.sampled_from(["exclusive", "leave", "collocate"]),
    st.sampled_from([1, 512, 1024, 4096]),
    st.sampled_from([{}, {"gpu_type": "a100"}, {"gpus": KINDS}]),
)


@given(message=MESSAGES, stated=CLAIMS, estimate=ESTIMATES, config=CONFIGS, whole_as_gpu=st.booleans())
def test_a_decision_keeps_the_rules(
    message: dict[str, Any],
    stated: UserDirectives,
    estimate: MemoryEstimate | None,
    config: Config,
    whole_as_gpu: bool,
) -> None:
    partition = config.partitions["gpu"]
    rewrite = decided(stated, estimate, config=config, whole_as_gpu=whole_as_gpu, **message)
    booking = rewrite.booking
    if booking is None:
        assert (rewrite.fields, rewrite.environment) == ({}, {})
        return
    assert rewrite.refusal is None
    requests = (
        [rewrite.fields["gres"]]
        if "gres" in rewrite.fields
        else [message.get("gres"), message.get("tres_per_job")]
    )
    shards = sum(count_of(parse_gres(text), "shard") for text in requests)
    if booking.kind == "shared":
        assert booking.memory_bytes is not None
        assert booking.memory_bytes == shards * partition.shard_bytes
        assert shards < partition.shards, "all of a GPU is a whole booking"
    else:
        assert booking.memory_bytes is None
        assert shards in (0, *(size.shards for size in partition.sizes))
    if stated.policy == "exclusive" and not shards:
        assert booking.kind == "whole"
    if rewrite.fields:
        assert partition.gpus or not any("gpu" in value for value in rewrite.fields.values())
        if booking.kind == "shared" and estimate is not None:
            assert booking.memory_bytes is not None and booking.memory_bytes >= estimate.upper_bytes


def test_a_chosen_confidence_books_less_and_caps_at_the_bound() -> None:
    row = replace(need(10 * GIB, 16 * GIB), quantiles=((0.5, 10 * GIB), (0.9, 12 * GIB), (0.99, 16 * GIB)))
    bound = decided(UserDirectives(profile="p"), row, gres="gres:gpu:1")
    assert bound.booking is not None
    assert (bound.booking.memory_bytes, bound.booking.cap_bytes) == (16 * GIB, None)
    chosen = decided(UserDirectives(profile="p"), row, config=config(confidence=0.9), gres="gres:gpu:1")
    assert chosen.booking is not None
    assert (chosen.booking.memory_bytes, chosen.booking.cap_bytes) == (12 * GIB, 16 * GIB)
    assert (chosen.booking.basis, chosen.fields["gres"]) == ("estimate", "shard:12")
    assert chosen.messages == ("RAD: estimated 10.0 GiB; booked 12.0 GiB (90th percentile), limit 16.0 GiB",)


def test_a_user_that_books_less_than_the_site_would_is_limited_to_it() -> None:
    row = replace(need(10 * GIB, 16 * GIB), quantiles=((0.5, 10 * GIB), (0.9, 12 * GIB), (0.99, 16 * GIB)))
    booking = decided(UserDirectives(profile="p", confidence=0.9), row, gres="gres:gpu:1").booking
    assert booking is not None
    assert (booking.memory_bytes, booking.cap_bytes, booking.basis) == (12 * GIB, None, "requested")


@given(stated=CLAIMS, estimate=ESTIMATES, config=CONFIGS)
def test_deciding_again_about_the_result_changes_nothing(
    stated: UserDirectives, estimate: MemoryEstimate | None, config: Config
) -> None:
    first = decided(stated, estimate, config=config, gres="gres:gpu:1")
    if first.fields:
        again = decided(stated, estimate, config=config, gres=f"gres:{first.fields['gres']}")
        assert first.booking is not None
        assert (again.fields, again.refusal) == ({}, None)
        assert again.booking == replace(
            first.booking, basis="requested"
        )  # shards by hand are the user's own choice


@pytest.mark.parametrize(
    ("source", "gres", "basis"),
    [
        ("stated", "gres:gpu:1", "requested"),
        ("rad", "gres:gpu:1", "estimate"),
        ("history", "gres:gpu:1", "history"),
        ("rad", "gres:shard:2", "requested"),
        ("rad", f"gres:shard:{SHARDS}", "requested"),
        (None, "gres:gpu:1", "requested"),
    ],
)
def test_a_booking_states_the_origin_of_its_size(source: str | None, gres: str, basis: str) -> None:
    estimate = None if source is None else replace(need(5 * GIB), source=source)
    booking = decided(UserDirectives(policy="collocate"), estimate, gres=gres).booking
    assert booking is not None and booking.basis == basis


def test_a_job_that_names_too_many_partitions_is_left_alone() -> None:
    names = [f"p{number}" for number in range(MOST_PARTITIONS + 1)]
    tree = {"partition": {name: {"collocate": True, "gpu_memory_mib": GPU_MIB} for name in names}}
    many = parse_config(tree, origin="rad.toml")
    left = decided(need_stated(), None, config=many, gres="gres:gpu:1", partition=",".join(names))
    assert (left.fields, left.booking, left.reason) == ({}, None, "too many partitions")
    few = decided(need_stated(), need(GIB), config=many, gres="gres:gpu:1", partition=",".join(names[1:]))
    assert few.booking is not None and len(few.booking.partitions) == MOST_PARTITIONS


def need_stated() -> UserDirectives:
    return UserDirectives(memory_bytes=GIB)


@pytest.mark.parametrize(
    ("overcommit", "smact", "seen", "shards"),
    [
        (0.0, 0.9, True, 4),  # off: memory alone
        (2.0, 0.9, True, 18),  # 0.9 / 2 of 39 shards
        (2.0, 0.9, False, 11),  # a profile does not tell the waits for data: 0.6 of it is expected
        (1.0, 0.05, True, 4),  # its memory is the larger share
        (2.0, None, False, 5),  # unknown counts as half of smact_max, and 0.6 of it
        (0.4, 0.9, False, 38),  # never all of a GPU: that would be a GPU alone
    ],
)
def test_compute_counts_in_shards_and_not_in_memory(
    overcommit: float, smact: float | None, seen: bool, shards: int
) -> None:
    rewrite = decided(
        estimate=replace(need(3 * GIB, 4 * GIB), smact=smact, smact_seen=seen),
        config=config(compute_overcommit=overcommit),
        gres="gres:gpu:1",
    )
    assert count_of(parse_gres(rewrite.fields["gres"]), "shard") == shards
    assert rewrite.booking is not None
    assert (rewrite.booking.memory_bytes, rewrite.booking.shards) == (4 * GIB, shards)


@pytest.mark.parametrize(
    ("busy", "seen", "shards"),
    [
        (0.5, False, 9),  # 0.6 of 1.37 * 0.5, over 2, of 39 shards: its neighbours wait while its kernels run
        (0.5, True, 14),
        (0.9, True, 20),  # no more than all of the time
        (None, False, 12),  # nothing shows: all of it
        (None, True, 12),  # earlier runs showed the SMs, not the time
    ],
)
def test_a_job_that_takes_turns_counts_by_the_time_and_not_by_the_sms(
    busy: float | None, seen: bool, shards: int
) -> None:
    estimate = replace(need(3 * GIB, 4 * GIB), smact=0.1, smact_seen=seen, busy=busy)
    streams = decided(
        estimate=estimate, config=config(compute_overcommit=2.0, sharing="streams"), gres="gres:gpu:1"
    )
    assert count_of(parse_gres(streams.fields["gres"]), "shard") == shards
    partition = config(compute_overcommit=2.0).partitions["gpu"]
    assert part_for(UserDirectives(), estimate, partition, gpus=2).requested == shards, "of each of its GPUs"
    assert part_for(UserDirectives(), estimate, partition).requested == 4, (
        "under MPS its memory is the larger share"
    )


def test_compute_counts_unless_the_site_says_otherwise() -> None:
    shipped = parse_config(
        {"partition": {"gpu": {"collocate": True, "gpu_memory_mib": GPU_MIB}}, "default_partition": "gpu"},
        origin="rad.toml",
    )
    estimate = replace(need(3 * GIB, 4 * GIB), smact=0.9, smact_seen=True)
    rewrite = decided(estimate=estimate, config=shipped, gres="gres:gpu:1")
    assert count_of(parse_gres(rewrite.fields["gres"]), "shard") == 18


@hypothesis_settings(deadline=None)
@given(
    st.integers(1, 39_000), st.floats(0.0, 1.0), st.floats(0.1, 10.0), st.sampled_from([None, "collocate"])
)
def test_compute_never_takes_shards_away(mib: int, smact: float, overcommit: float, policy: Any) -> None:
    estimate = replace(need(mib * MIB), smact=smact)
    plain, busy = (
        decided(
            UserDirectives(policy=policy), estimate, config=config(compute_overcommit=each), gres="gres:gpu:1"
        )
        for each in (0.0, overcommit)
    )
    before, after = (count_of(parse_gres(one.fields["gres"]), "shard") for one in (plain, busy))
    assert before <= after <= SHARDS
    assert (before == SHARDS) == (after == SHARDS), "compute alone makes no job exclusive"
    assert plain.booking is not None and busy.booking is not None
    assert plain.booking.memory_bytes == busy.booking.memory_bytes
