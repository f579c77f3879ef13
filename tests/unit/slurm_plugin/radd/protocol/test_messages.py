"""Whatever arrives becomes a record, or is refused with a WireError."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.errors import WireError
from slurm_plugin.radd.protocol.messages import Modified, Submitted, modified_from, submitted_from

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
NAMES = (
    *("job_id", "user_id", "comment", "admin_comment", "script", "script_name", "script_goes_on"),
    *("gres", "tres_per_task", "min_nodes", "new_controller", "reserves_parts"),
)
messages = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=8), values, max_size=8)
identified = st.builds(lambda fields, user: {**fields, "user_id": user}, messages, st.integers(0, 2**31))


@given(messages | identified, st.booleans(), st.booleans())
def test_a_submission_is_a_record_or_is_refused(
    fields: dict[str, Any], parts: bool, controller: bool
) -> None:
    try:
        made = submitted_from(fields, honour_reserved_parts=parts, honour_new_controller=controller)
    except WireError as exc:
        assert "\n" not in str(exc)
    else:
        assert isinstance(made, Submitted) and made.script_name
        assert made.script_goes_on == (fields.get("script_goes_on") is True)
        assert made.request.user_id == fields["user_id"]


@given(messages | identified)
def test_a_change_is_a_record_or_is_refused(fields: dict[str, Any]) -> None:
    try:
        made = modified_from(fields)
    except WireError as exc:
        assert "\n" not in str(exc)
    else:
        assert isinstance(made, Modified)
        assert (made.job_id, made.user_id) == (fields["job_id"], fields["user_id"])
