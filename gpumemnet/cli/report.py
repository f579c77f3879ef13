"""Output of `rad-estimate`: JSON, a few lines, an explanation, or the lines to add to a job script."""

from __future__ import annotations

import shlex

from gpumemnet.cli.cluster import SbatchAnswer, Scheduled
from gpumemnet.cli.question import comment_words, directive_words
from gpumemnet.cli.reported import Booked, Reported
from gpumemnet.estimate import Activity, Estimate, Likely
from gpumemnet.units import human, to_mib_nearest, to_mib_up

_WHAT = {
    "base": "CUDA context, kernels and libraries",
    "parameters": "weights and buffers",
    "gradients": "one per trainable weight",
    "optimizer": "states that stay between steps",
    "activations": "kept for the backward pass, with the batch itself",
    "workspace": "temporaries, libraries' scratch, the allocator's rounding and reserve",
}
_AT_PEAK = {"gradients": "those that exist at the peak of the traced step"}

_ALONE = {
    "exclusive": " (a whole GPU)",
    "kept": " (a whole GPU)",
    "multi-gpu": " (whole GPUs)",
    "multi-node": " (whole GPUs)",
    "heterogeneous": " (its first component)",
}
"""Allocation of a job that does not share, by decision."""


def _reserved_text(result: Estimate, booked: Booked) -> str:
    if result.estimator == "stated":
        return f"requested {human(result.estimate_bytes)}; booked {booked.words()}"
    return (
        f"estimated {human(result.estimate_bytes)}; booked {booked.words()} ({result.family}, {result.gpu})"
    )


def _submitted_text(submitted: SbatchAnswer | None, scheduled: Scheduled | None) -> list[str]:
    """Return sbatch's message, the job's request, and Slurm's answer."""
    if submitted is None:
        return []
    lines = [f"sbatch: {line}" for line in submitted.messages]
    if submitted.refusal is not None:
        return [*lines, f"sbatch: error: {submitted.refusal}", *_scheduled_text(scheduled)]
    where = f" in partition {submitted.partition}" if submitted.partition else ""
    as_it_is = "" if submitted.capacity_bytes else "; unchanged by RAD"
    alone = _ALONE.get(submitted.decision, "")
    observed = _observed_text(submitted.decision)
    lines.append(f"requests {submitted.gres or 'no GPU'}{where}{alone}{as_it_is}{observed}")
    return [*lines, *_scheduled_text(scheduled)]


def _observed_text(decision: str) -> str:
    """Return what a cluster that only observes would do with the job once RAD is switched on; "" elsewhere.

    >>> _observed_text("observe: shared shard:6"), _observed_text("shared")
    ('; RAD only observes here and would request shard:6', '')
    """
    kind, _, what = decision.removeprefix("observe: ").partition(" ")
    if kind == decision or kind not in ("shared", "whole", "refused"):
        return ""
    return f"; RAD only observes here and would {'refuse it: ' if kind == 'refused' else 'request '}{what}"


def _scheduled_text(scheduled: Scheduled | None) -> list[str]:
    return [] if scheduled is None else [f"Slurm says: {line}" for line in scheduled.lines]


def _activity_text(activity: Activity | None) -> list[str]:
    """Return a line on the training's GPU activity; none if unknown."""
    if activity is None:
        return []
    step, smact, dram = activity.step_s, activity.smact, activity.dram
    scale, unit = (1, "s") if step.high >= 1 else (1000, "ms")
    return [
        f"alone on an {activity.gpu.upper()}, without waiting for data: a step takes {step.value * scale:.3g} {unit}"
        f" ({step.low * scale:.3g} to {step.high * scale:.3g}), SM activity {_percent(smact)},"
        f" memory bandwidth {_percent(dram)}"
    ]


def _percent(span: Likely) -> str:
    return f"{span.value * 100:.0f} % ({span.low * 100:.0f} to {span.high * 100:.0f})"


def as_text(reported: Reported) -> str:
    """Return a few lines: sbatch's message, or the estimate without a cluster; then the notes."""
    result, booked = reported.result, reported.booked
    lines = _submitted_text(reported.submitted, reported.scheduled)
    if result is not None and booked is not None:
        if reported.submitted is None:
            lines.append(_reserved_text(result, booked))
        lines += _activity_text(result.activity)
    return "\n".join([*lines, *(f"note: {text}" for text in reported.notes)])


def as_explanation(reported: Reported) -> str:
    """Return the memory by purpose, and the assumptions."""
    result, booked, gpu_model, setup = (
        reported.result,
        reported.booked,
        reported.gpu_model,
        reported.directives.setup,
    )
    if result is None or booked is None:
        return as_text(reported)
    batch = "the summary's own" if setup.batch_size is None else str(setup.batch_size)
    checkpointing = ", gradient checkpointing" if setup.gradient_checkpointing else ""
    settings = f"batch size {batch}, optimizer {setup.optimizer}, precision {setup.precision}{checkpointing}"
    lines = [f"One process on {result.gpu}: {result.traced or settings}", ""]
    what = _WHAT | _AT_PEAK if result.traced else _WHAT
    for key, value in result.breakdown_bytes.items():
        share = value / max(result.estimate_bytes, 1)
        lines.append(f"  {key:<12}{to_mib_nearest(value):>9} MiB {share:>5.0%}  {what.get(key, '')}")
    lines += [
        f"  {'estimated':<12}{to_mib_nearest(result.estimate_bytes):>9} MiB"
        "        what nvidia-smi would show at the peak",
        f"  {'booked':<12}{to_mib_up(booked.shards_bytes):>9} MiB        {_trust(booked)}; {booked.part}",
        *_cap_line(booked),
        "",
        *_submitted_text(reported.submitted, reported.scheduled),
        f"Estimator: {result.estimator}; network: {result.family}.",
        *([reported.made] if reported.made else []),
        *_learned_line(reported.submitted),
        f"Under MPS {to_mib_nearest(gpu_model.mps_client_bytes)} MiB of the base are the MPS client's context; the"
        f" MPS server of a user uses {to_mib_nearest(gpu_model.mps_server_bytes)} MiB more, which no job books.",
        *(
            line[0].upper() + line[1:] + "; each range covers 80 % of jobs."
            for line in _activity_text(result.activity)
        ),
    ]
    return "\n".join([*lines, *(f"note: {text}" for text in reported.notes)])


def _learned_line(submitted: SbatchAnswer | None) -> list[str]:
    """Return a line on the effect of this site's runs; none if there is none."""
    if submitted is None or not submitted.learned:
        return []
    return [f"{submitted.learned[0].upper()}{submitted.learned[1:]}."]


def _cap_line(booked: Booked) -> list[str]:
    """Return a line on the limit if it is above the booking."""
    if booked.limit_bytes <= booked.shards_bytes:
        return []
    return [
        f"  {'limit':<12}{to_mib_up(booked.limit_bytes):>9} MiB        the most that it may allocate if memory is free"
    ]


def _trust(booked: Booked) -> str:
    if booked.whole:
        return "the whole GPU"
    if booked.share is None:
        return "how often it is exceeded was not measured"
    return f"exceeded by at most {100 * (1 - booked.share):.3g}% of jobs"


def as_sbatch(reported: Reported) -> str:
    """Return the lines for a job script, and the same as a command."""
    words = directive_words(reported.directives)
    line = "#RAD " + " ".join(shlex.quote(word) if " " in word else word for word in words)
    comment = comment_words(reported.directives)
    lines = [
        "# Add these lines above the first command of the job script:",
        "#SBATCH --gpus=1",
        line,
        "# or submit with:",
        f"# sbatch --gpus=1 --comment={shlex.quote(comment)} job.sh",
    ]
    if (booked := reported.booked) is not None:
        lines.append(f"# books {human(booked.shards_bytes)}: {booked.shards} x {booked.shard_mib} MiB")
    return "\n".join([*lines, *(f"# note: {text}" for text in reported.notes)])
