"""Messages are handled in order, outside of the request that brought them."""

from __future__ import annotations

import threading

from fakes import FakeClock
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_plugin.radd.inbox import REFRESH_S, Inbox


@settings(max_examples=30)
@given(st.lists(st.integers(1, 8), max_size=12))
def test_every_message_is_handled_in_order_and_refreshes_do_not_starve(steps_s: list[int]) -> None:
    """A message takes so many seconds: as soon as REFRESH_S have passed, the next thing done is a refresh."""
    clock = FakeClock()
    done: list[tuple[str, int, float]] = []

    def take(seconds: int) -> None:
        clock.sleep(seconds)
        done.append(("message", seconds, clock.monotonic_s()))

    begun_s = clock.monotonic_s()
    inbox: Inbox[int] = Inbox(take, lambda: done.append(("refresh", 0, clock.monotonic_s())), clock)
    for seconds in steps_s:
        inbox.put(seconds)
    inbox.stop()
    assert [seconds for kind, seconds, _ in done if kind == "message"] == steps_s
    refreshed_s = begun_s
    for number, (kind, _, at_s) in enumerate(done, start=1):
        if kind == "refresh":
            refreshed_s = at_s
        elif at_s - refreshed_s >= REFRESH_S:
            assert done[number][0] == "refresh"


def test_the_caller_does_not_wait() -> None:
    goes_on, handled = threading.Event(), threading.Event()

    def take(message: str) -> None:
        assert goes_on.wait(30)
        handled.set()

    inbox: Inbox[str] = Inbox(take, lambda: None, FakeClock())
    inbox.put("a message")
    assert not handled.is_set()
    goes_on.set()
    assert handled.wait(30)
    inbox.stop()
