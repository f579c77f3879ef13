"""Which jobs share an MPS server, and how much a GPU where it runs is preferred."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.placement.server_keys import is_server_key, server_key, user_of
from slurm_plugin.core.records.submission import ServerScope

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


@given(
    scope=SCOPES,
    jobs=st.lists(
        st.tuples(USERS, ACCOUNTS, JOBS, st.booleans()), min_size=2, max_size=8, unique_by=lambda job: job[2]
    ),
)
def test_a_job_shares_no_server_that_its_setting_forbids(
    scope: ServerScope, jobs: list[tuple[int, str, int, bool]]
) -> None:
    keys = [
        server_key(scope, user_id=user_id, account=account, job_id=job_id, own=own)
        for user_id, account, job_id, own in jobs
    ]
    for (one, (user_id, _, _, own)), (other, (other_user_id, _, _, other_own)) in combinations(
        zip(keys, jobs, strict=True), 2
    ):
        if own or other_own:
            assert one != other
        elif scope == "user":
            assert (one == other) == (user_id == other_user_id)
