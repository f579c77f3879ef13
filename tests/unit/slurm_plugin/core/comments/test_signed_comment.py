from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.booking.verification import MOST_PARTITIONS, partition_mark
from slurm_plugin.core.comments import signed_comment
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.records.submission import Booking, RequestedTasks
from slurm_plugin.core.units import MIB

KEY = bytes(range(32))
SIZES = st.none() | st.integers(1, 10**6).map(lambda mib: mib * MIB)
PLAIN = st.builds(
    Booking,
    kind=st.sampled_from(["shared", "whole"]),
    gpus=st.integers(1, 64),
    memory_bytes=SIZES,
    estimate_bytes=SIZES,
    smact=st.none() | st.integers(0, 1000).map(lambda thousandths: thousandths / 1000),
    recoveries=st.integers(0, 9),
    retry=st.booleans(),
    profile_key=st.none() | st.from_regex(r"[0-9a-f]{16}", fullmatch=True),
    basis=st.sampled_from(["requested", "estimate", "history"]),
    shards=st.integers(0, 10**4),
    by_task=st.none()
    | st.builds(
        RequestedTasks, tasks=st.integers(1, 10**4), cpus=st.integers(0, 10**3), own_gpu=st.booleans()
    ),
    partitions=st.lists(st.text(max_size=20).map(partition_mark), max_size=MOST_PARTITIONS).map(tuple),
    own_server=st.booleans(),
    changed=st.booleans(),
)
BOOKINGS = st.builds(
    lambda booking, more: replace(
        booking, cap_bytes=None if more is None else (booking.memory_bytes or 0) + more
    ),
    PLAIN,
    SIZES,
)
COMMENTS = st.binary(max_size=1500).map(lambda data: data.decode(errors="surrogateescape"))


@given(booking=BOOKINGS, comment=COMMENTS, user_id=st.integers(0, 2**32 - 1))
def test_a_booking_comes_back_from_any_comment(booking: Booking, comment: str, user_id: int) -> None:
    text = signed_comment.with_signed_booking(
        comment, signed_comment.signed_booking(booking, user_id=user_id, key=KEY)
    )
    assert len(text.encode(errors="surrogateescape")) < signed_comment.COMMENT_LIMIT
    assert signed_comment.read_signed_booking(text, user_id=user_id, key=KEY) == booking
    assert signed_comment.read_signed_booking(text, user_id=user_id + 1, key=KEY) is None
    assert signed_comment.read_signed_booking(text, user_id=user_id, key=KEY[::-1]) is None


@given(text=st.text(max_size=40))
def test_a_booking_is_shown_without_the_key_and_never_fails(text: str) -> None:
    booking = Booking(kind="shared", memory_bytes=12 * MIB, shards=3)
    signed = signed_comment.signed_booking(booking, user_id=1, key=KEY)
    assert signed_comment.shown_booking(f"{text} {signed}") == booking
    forged = f"rad2:shared:mem={text or 'x'}:0123456789abcdef"
    shown = signed_comment.shown_booking(forged)
    assert shown is None or shown.kind == "shared"
    assert signed_comment.read_signed_booking(forged, user_id=1, key=KEY) is None


@given(booking=BOOKINGS, comment=COMMENTS, profile=st.none() | st.just("p1.0.1-2"))
def test_a_comment_has_three_parts(booking: Booking, comment: str, profile: str | None) -> None:
    signed = signed_comment.signed_booking(booking, user_id=7, key=KEY)
    named = "" if profile is None else f" rad.profile:{profile}"
    found = signed_comment.read_comment(f"{comment} {signed}{named}")
    assert found.words == signed_comment.user_words(comment) == signed_comment.user_words(found.words)
    assert found.signed == signed
    if signed_comment.profile_in(comment) is None:
        assert found.profile == profile
    assert signed_comment.verified_booking(found, user_id=7, key=KEY) == booking


@given(booking=BOOKINGS, at=st.integers(0, 200), letter=st.characters())
def test_a_changed_booking_is_none(booking: Booking, at: int, letter: str) -> None:
    signed = signed_comment.signed_booking(booking, user_id=7, key=KEY)
    forged = signed[: at % len(signed)] + letter + signed[at % len(signed) + 1 :]
    assert signed_comment.read_signed_booking(forged, user_id=7, key=KEY) == (
        booking if forged == signed else None
    )


@given(booking=BOOKINGS, words=st.text(alphabet="abc %", max_size=60).map(str.strip))
def test_a_new_booking_replaces_the_old_and_keeps_the_words(booking: Booking, words: str) -> None:
    old = signed_comment.with_signed_booking(
        words, signed_comment.signed_booking(Booking(kind="whole"), user_id=7, key=KEY)
    )
    new = signed_comment.with_signed_booking(old, signed_comment.signed_booking(booking, user_id=7, key=KEY))
    assert signed_comment.user_words(new) == words
    assert new.count("rad2:") == 1
    assert signed_comment.read_signed_booking(new, user_id=7, key=KEY) == booking


def test_a_limit_that_equals_the_booking_is_not_written() -> None:
    booking = Booking(kind="shared", memory_bytes=5 * MIB, cap_bytes=5 * MIB)
    signed = signed_comment.signed_booking(booking, user_id=7, key=KEY)
    assert "cap=" not in signed
    assert signed_comment.read_signed_booking(signed, user_id=7, key=KEY) == replace(booking, cap_bytes=None)


@given(text=st.text(max_size=300))
def test_text_that_is_no_booking_is_none(text: str) -> None:
    assert signed_comment.read_signed_booking(text, user_id=0, key=KEY) is None


def test_a_profile_goes_in_and_out_and_gives_way_to_the_booking() -> None:
    comment = signed_comment.with_profile("my words", "p1.0.1-2_3~4")
    assert comment == "my words rad.profile:p1.0.1-2_3~4"
    assert signed_comment.profile_in(comment) == "p1.0.1-2_3~4"
    comment = signed_comment.with_signed_booking(
        comment, signed_comment.signed_booking(Booking(kind="whole"), user_id=7, key=KEY)
    )
    assert signed_comment.profile_in(comment) is None
    assert comment.startswith("my words rad2:whole:")
    assert signed_comment.with_profile("x" * 600, "y" * 600) is None


def test_a_key_of_another_user_says_whose_it_must_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key"
    path.write_bytes(KEY)
    path.chmod(0o600)

    def refuse(path: str, flags: int) -> int:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(
        signed_comment, "opened", refuse
    )  # root, which runs these tests too, may read everything
    with pytest.raises(ConfigError, match=f"cannot be read.*chown slurm {path}"):
        signed_comment.read_key(path)


def test_a_fifo_is_no_key(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key", 0o600)
    with pytest.raises(ConfigError, match=r"no cluster key \(not a regular file\); run: rad install --key"):
        signed_comment.read_key(tmp_path / "key")


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    with pytest.raises(ConfigError, match="rad install --key"):
        signed_comment.read_key(path)
    path.write_bytes(KEY)
    for mode in (0o644, 0o640, 0o604):
        path.chmod(mode)
        with pytest.raises(ConfigError, match="chmod 600"):
            signed_comment.read_key(path)
    path.chmod(0o600)
    assert signed_comment.read_key(path) == KEY
    path.write_bytes(KEY[:10])
    with pytest.raises(ConfigError, match="shorter"):
        signed_comment.read_key(path)


@pytest.mark.parametrize("end", ["\t", " ", "\n", ""])
def test_a_dead_booking_among_the_users_words_does_not_hide_a_valid_one(end: str) -> None:
    booking = Booking(kind="shared", memory_bytes=5 * MIB)
    good = signed_comment.signed_booking(booking, user_id=7, key=KEY)
    dead = good[:-1] + ("0" if good[-1] != "0" else "1")
    for comment in (signed_comment.with_signed_booking(f"{dead}{end}", good), f"{dead} {good}"):
        assert signed_comment.read_signed_booking(comment, user_id=7, key=KEY) == booking


def test_a_share_cannot_be_made_a_whole_gpu() -> None:
    signed = signed_comment.signed_booking(Booking(kind="shared", memory_bytes=5 * MIB), user_id=7, key=KEY)
    assert (
        signed_comment.read_signed_booking(signed.replace("rad2:shared:", "rad2:whole:"), user_id=7, key=KEY)
        is None
    )


def test_a_booking_of_a_newer_release_that_says_more_is_not_half_believed() -> None:
    body = "gpus=1:mem=5:more=1"
    signed = f"rad2:shared:{body}:{signed_comment._mac('shared', body, 7, KEY)}"
    assert signed_comment.read_signed_booking(signed, user_id=7, key=KEY) is None


def test_a_comment_is_filled_to_the_last_byte_that_slurm_keeps() -> None:
    signed = signed_comment.signed_booking(Booking(kind="whole"), user_id=7, key=KEY)
    assert len(signed_comment.with_signed_booking("x" * 2000, signed)) == signed_comment.COMMENT_LIMIT - 1
    space = signed_comment.COMMENT_LIMIT - 1 - len("x rad.profile:")
    assert signed_comment.with_profile("x", "y" * space) is not None
    assert signed_comment.with_profile("x", "y" * (space + 1)) is None
