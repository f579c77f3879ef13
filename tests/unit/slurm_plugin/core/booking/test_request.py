"""What a message of job_submit.lua means depends on what this Slurm version does."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.booking.request import request_from

messages = st.fixed_dictionaries(
    {"user_id": st.just(1000)},
    optional={
        "reserves_parts": st.booleans() | st.none(),
        "new_controller": st.booleans() | st.none(),
        "recurs": st.booleans(),
        "container": st.just("/bundle"),
    },
)


@given(messages, st.booleans(), st.booleans())
def test_a_flag_that_this_slurm_does_not_need_is_as_if_it_were_not_sent(
    message: dict[str, Any], parts: bool, controller: bool
) -> None:
    unneeded = set()
    if not parts:
        unneeded.add("reserves_parts")
    if not controller:
        unneeded.add("new_controller")
    without = {name: value for name, value in message.items() if name not in unneeded}
    request = request_from(message, honour_reserved_parts=parts, honour_new_controller=controller)
    assert request == request_from(without)
    assert request.before_shards == (controller and message.get("new_controller") is True)
