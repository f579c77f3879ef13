"""Which jobs share an MPS server, and how much a GPU where it runs is preferred."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.placement.candidate import CandidateGpu
from slurm_plugin.core.placement.choose import choose_gpu
from slurm_plugin.core.placement.policies import POLICIES
from slurm_plugin.core.placement.servers import is_server_key, near_server, runs_on, server_key, user_of
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.records.node import Allocation, Demand, ServerScope
from slurm_plugin.core.records.submission import PolicyName
from slurm_plugin.core.units import GIB

SCOPES = st.sampled_from(["user", "account", "gpu"])
USERS, ACCOUNTS, JOBS = st.integers(0, 2**32 - 2), st.text(max_size=80), st.integers(1, 2**31)


@given(scope=SCOPES, user_id=USERS, account=ACCOUNTS, job_id=JOBS, own=st.booleans())
def test_a_key_is_short_and_known(
    scope: ServerScope, user_id: int, account: str, job_id: int, own: bool
) -> None:
    key = server_key(scope, user_id=user_id, account=account, job_id=job_id, own=own)
    assert is_server_key(key) and "/" not in key
    # The socket of a server on a node with the default paths: unix(7) allows 107 bytes.
    assert len(f"/run/rad/mps/GPU-{'x' * 36}/{key}/pipe/control_privileged") <= 107
    per_user = not own and (scope == "user" or (scope == "account" and not account))
    assert user_of(key) == (user_id if per_user else None)


@given(account=ACCOUNTS, other=ACCOUNTS, users=st.tuples(USERS, USERS))
def test_jobs_of_one_account_share_a_server_and_no_others(
    account: str, other: str, users: tuple[int, int]
) -> None:
    one, two = (
        server_key("account", user_id=user, account=name, job_id=1)
        for user, name in zip(users, (account, other), strict=True)
    )
    if account and other:
        assert (one == two) == (account == other)
    else:
        assert (one == two) == (not account and not other and users[0] == users[1])


@pytest.mark.parametrize("name", ["", ".", "all.lock", "1000.lock", "aXYZ", "j", "../x", "12345678901"])
def test_other_names_are_no_keys(name: str) -> None:
    assert not is_server_key(name)


def allocation(job_id: int, index: int, server: str, *, uncapped: bool = False) -> Allocation:
    return Allocation(
        job_id=job_id,
        user_id=1,
        kind="shared",
        gpus=(f"GPU-{index}",),
        gpu_indices=(index,),
        booked_bytes=GIB,
        created_s=0.0,
        server=server,
        uncapped=uncapped,
    )


KEYS = ("1000", "all", "")


@st.composite
def rooms(draw: st.DrawFn) -> tuple[CandidateGpu, ...]:
    count = draw(st.integers(1, 5))
    return tuple(
        CandidateGpu(
            uuid=f"GPU-{index}",
            index=index,
            free_bytes=draw(st.integers(0, 40)) * GIB,
            usable_bytes=40 * GIB,
            shares=(),
            smact=draw(st.none() | st.floats(0, 2)),
            unmanaged_bytes=0,
            overrun_bytes=0,
            jobs=tuple(
                allocation(10 * index + k, index, draw(st.sampled_from(KEYS)), uncapped=draw(st.booleans()))
                for k in range(draw(st.integers(0, 3)))
            ),
        )
        for index in range(count)
    )


@given(
    candidates=rooms(),
    key=st.sampled_from(KEYS),
    affinity=st.floats(0, 1),
    policy=st.sampled_from(sorted(POLICIES)),
)
def test_a_server_decides_among_gpus_that_are_about_as_good(
    candidates: tuple[CandidateGpu, ...], key: str, affinity: float, policy: PolicyName
) -> None:
    best = POLICIES[policy](candidates, Ledger(), candidates)
    chosen = near_server(best, candidates, key, affinity)
    assert chosen in candidates
    if chosen != best:
        assert runs_on(chosen, key) and not runs_on(best, key)
        assert abs(chosen.free_bytes - best.free_bytes) <= affinity * 40 * GIB
        assert abs(chosen.activity - best.activity) <= affinity
    equal = [
        room for room in candidates if (room.free_bytes, room.activity) == (best.free_bytes, best.activity)
    ]
    if any(runs_on(room, key) for room in equal):
        assert runs_on(chosen, key), "of equal GPUs the one with the server"
    if not any(runs_on(room, key) for room in candidates):
        assert chosen == best, "without a server the policy alone decides"


@pytest.mark.parametrize(
    ("affinity", "key", "policy", "expected"),
    [
        (0.0, "1000", "magm", "GPU-0"),
        (0.2, "1000", "magm", "GPU-1"),
        (0.2, "2000", "magm", "GPU-0"),
        (0.2, "", "magm", "GPU-0"),
        (0.2, "1000", "round_robin", "GPU-0"),
    ],
)
def test_the_setting_reaches_the_choice(affinity: float, key: str, policy: PolicyName, expected: str) -> None:
    readings = tuple(
        GpuReading(
            uuid=f"GPU-{index}",
            index=index,
            name="test",
            memory_total_bytes=40 * GIB,
            memory_used_bytes=used * GIB,
            smact=0.1,
            time_s=0.0,
        )
        for index, used in ((0, 0), (1, 4))
    )
    placement = choose_gpu(
        readings,
        Ledger(allocations=(allocation(1, 0, "3000"), allocation(2, 1, "1000"))),
        Demand(job_id=9, user_id=1000, kind="shared", gpus=1, booked_bytes=GIB, gpu_indices=(0,), server=key),
        PartitionConfig(policy=policy, server_affinity=affinity),
        pin="free",
        now_s=1000.0,
    )
    assert placement.gpus == (expected,)
