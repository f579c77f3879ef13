"""What the owner of a job reads when it ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_plugin.core.history.advice import next_time, used
from slurm_plugin.core.history.runs import Run
from slurm_plugin.core.units import GIB, MIB

RUN = Run(
    user_id=1000,
    job_id=7,
    outcome="ok",
    peak_bytes=9 * GIB,
    booked_bytes=12 * GIB,
    profile_key="ab12",
    mean_smact=0.41,
    start_s=0.0,
    time_s=3600.0,
)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (RUN, "used 9.0 of 12.0 GiB, SM activity 0.41"),
        (replace(RUN, peak_bytes=300 * MIB, mean_smact=None), "used 300 MiB of 12.0 GiB"),
        (replace(RUN, booked_bytes=None), "used 9.0 GiB of a whole GPU, SM activity 0.41"),
        (replace(RUN, peak_bytes=None), ""),
    ],
)
def test_what_it_used(run: Run, words: str):
    assert used(run) == words


@pytest.mark.parametrize(
    ("run", "remembered", "words"),
    [
        (RUN, True, "the next run books 9.4 GiB"),
        (RUN, False, "to book less, add #RAD memory=10G"),
        (replace(RUN, profile_key=None), True, "to book less, add #RAD memory=10G"),
        (replace(RUN, booked_bytes=None), True, "to share a GPU, add #RAD memory=10G"),
        (
            replace(RUN, peak_bytes=int(11.9 * GIB), profile_key=None),
            True,
            "to avoid running out of memory, add #RAD memory=13G",
        ),
        (replace(RUN, peak_bytes=11 * GIB), True, None),
        (replace(RUN, outcome="gpu-oom"), True, "it needed more memory than it booked"),
        (
            replace(RUN, outcome="gpu-oom", booked_bytes=None),
            True,
            "it needed more memory than a GPU has; reduce",
        ),
        (replace(RUN, time_s=2.0), False, None),
        (replace(RUN, outcome="overrun"), True, "it was stopped above its limit"),
        (replace(RUN, outcome="failed"), True, None),
        (replace(RUN, outcome="failed", mean_smact=0.05), True, "the GPU was mostly idle"),
        (replace(RUN, outcome="failed", mean_smact=0.05, time_s=30.0), True, None),
        (Run(user_id=1, outcome="ok"), True, None),
    ],
)
def test_what_to_do_next_time(run: Run, remembered: bool, words: str | None):
    found = next_time(run, remembered=remembered)
    assert (found[0][: len(words)] if found else None) == words if words else not found
