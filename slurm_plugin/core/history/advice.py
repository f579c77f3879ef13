"""Advice for the user of an ended job: usage compared with the booking, and what to change next time. No I/O."""

from __future__ import annotations

from slurm_plugin.core.history.runs import Run, bound_of
from slurm_plugin.core.units import GIB, human

WORTH_BYTES = GIB
"""A smaller difference between booked and needed memory is not mentioned."""

IDLE = 0.15
"""Below this mean SM activity a training mostly waits for something other than its GPU."""

LEAST_S = 60.0
"""A shorter run shows little of a training: neither its activity, nor how little memory would be enough."""


def used(run: Run) -> str:
    """Return what a run used, in a few words; "" if it was not observed.

    >>> used(Run(user_id=1, peak_bytes=9 * GIB, booked_bytes=12 * GIB, mean_smact=0.41))
    'used 9.0 of 12.0 GiB, SM activity 0.41'
    """
    if run.peak_bytes is None:
        return ""
    memory = f"used {human(run.peak_bytes)} of a whole GPU"
    if run.booked_bytes is not None:
        peak, booked = human(run.peak_bytes), human(run.booked_bytes)
        same_unit = peak.endswith(" GiB") and booked.endswith(" GiB")
        memory = f"used {peak.removesuffix(' GiB') if same_unit else peak} of {booked}"
    return memory if run.mean_smact is None else f"{memory}, SM activity {run.mean_smact:.2f}"


def next_time(run: Run, *, remembered: bool) -> tuple[str, ...]:
    """Return what is worth changing, one sentence each, the most useful first.

    Args:
        run: The run.
        remembered: Whether radd will book the observed need of this run if the same model is submitted again.
    """
    found = []
    lasted_s = None if run.start_s is None or run.time_s is None else run.time_s - run.start_s
    if run.outcome == "ok" and run.peak_bytes is not None:
        if lasted_s is None or lasted_s >= LEAST_S:
            found += _about_size(run, run.peak_bytes, remembered=remembered and run.profile_key is not None)
    elif run.outcome == "gpu-oom" and run.booked_bytes is None:
        found.append(
            "it needed more memory than a GPU has; reduce the batch size, or split the model over several"
        )
    elif run.outcome == "gpu-oom":
        found.append("it needed more memory than it booked; add #RAD model=, or increase memory=")
    elif run.outcome == "overrun":
        found.append("it was stopped above its limit; book its need with #RAD memory=, or add #RAD model=")
    elif run.outcome == "idle":
        found.append(
            "it was stopped because it used GPU memory and computed nothing; end sessions that are not used"
        )
    if run.mean_smact is not None and run.mean_smact < IDLE and (lasted_s or 0.0) >= LEAST_S:
        found.append("the GPU was mostly idle; try more data loader workers, or a larger batch")
    return tuple(found)


def _about_size(run: Run, peak_bytes: int, *, remembered: bool) -> list[str]:
    bound = bound_of(peak_bytes)
    if run.booked_bytes is None:
        return [f"to share a GPU, add #RAD memory={_memory_value(bound)}"]
    if run.booked_bytes - bound < WORTH_BYTES:
        if bound <= run.booked_bytes or remembered:
            return []
        return [f"to avoid running out of memory, add #RAD memory={_memory_value(bound)}"]
    if remembered:
        return [f"the next run books {human(bound)}"]
    return [f"to book less, add #RAD memory={_memory_value(bound)}"]


def _memory_value(n_bytes: int) -> str:
    """Return a size as `memory=` takes it, rounded up."""
    return f"{-(-n_bytes // GIB)}G"
