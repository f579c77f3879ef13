"""What `rad-estimate` prints: JSON, a line, an explanation, or the lines to add to a job script."""

from __future__ import annotations

import json

from gpumemnet.directives.parse import Directives
from gpumemnet.estimate import Activity, Estimate
from gpumemnet.gpus import gpu_named
from gpumemnet.training import TrainingSetup
from gpumemnet.units import MIB, to_mib_nearest, to_mib_up

SHARD_MIB = 1024
"""Default size of one shard; a site may configure another."""

_WHAT = {
    "base": "CUDA context, kernels and libraries",
    "parameters": "weights and buffers",
    "gradients": "one per trainable weight",
    "optimizer": "states that stay between steps",
    "activations": "kept for the backward pass, with the batch itself",
    "workspace": "temporaries, libraries' scratch, the allocator's rounding and reserve",
}


def shards(upper_bytes: int) -> int:
    """Return the number of shards that hold this many bytes."""
    return -(-upper_bytes // (SHARD_MIB * MIB))


def as_json(result: Estimate, warnings: tuple[str, ...]) -> str:
    """Return the estimate as one JSON object; its keys are a stable contract.

    Args:
        result: The estimate.
        warnings: What had to be guessed, one sentence each.
    """
    return json.dumps(
        {
            "version": 1,
            "family": result.family,
            "estimator": result.estimator,
            "estimate_mib": to_mib_nearest(result.estimate_bytes),
            "upper_mib": to_mib_up(result.upper_bytes),
            "confidence": result.confidence,
            "shards": shards(result.upper_bytes),
            "shard_mib": SHARD_MIB,
            "gpu": result.gpu,
            "breakdown_mib": {key: to_mib_nearest(value) for key, value in result.breakdown_bytes.items()},
            "warnings": [*warnings, *result.warnings],
            "activity": None if result.activity is None else _activity_json(result.activity),
        }
    )


def _activity_json(activity: Activity) -> dict[str, object]:
    numbers = {name: getattr(activity, name) for name in ("step_s", "smact", "busy", "dram")}
    return {"gpu": activity.gpu} | {
        name: {"value": round(n.value, 5), "low": round(n.low, 5), "high": round(n.high, 5)}
        for name, n in numbers.items()
    }


def _activity_text(activity: Activity | None) -> list[str]:
    """Return a line on what the training does to a GPU; none if nothing tells."""
    if activity is None:
        return []
    step, smact, dram = activity.step_s, activity.smact, activity.dram
    return [
        f"alone on an {activity.gpu.upper()}, never waiting for data: step {step.value * 1000:.3g} ms"
        f" ({step.low * 1000:.3g} to {step.high * 1000:.3g}),"
        f" SMACT {smact.value:.2f} ({smact.low:.2f} to {smact.high:.2f}),"
        f" memory bandwidth {dram.value:.2f} ({dram.low:.2f} to {dram.high:.2f})"
    ]


def as_text(result: Estimate, warnings: tuple[str, ...]) -> str:
    """Return the estimate in one line, then the warnings.

    Args:
        result: The estimate.
        warnings: What had to be guessed, one sentence each.
    """
    head = (
        f"{to_mib_nearest(result.estimate_bytes)} MiB expected, {to_mib_up(result.upper_bytes)} MiB to book"
        f" = {shards(result.upper_bytes)} shards of {SHARD_MIB} MiB ({result.family}, {result.gpu})"
    )
    return "\n".join(
        [head, *_activity_text(result.activity), *(f"note: {text}" for text in (*warnings, *result.warnings))]
    )


def as_explanation(result: Estimate, setup: TrainingSetup, warnings: tuple[str, ...]) -> str:
    """Return where the memory goes and what was assumed.

    Args:
        result: The estimate.
        setup: How the model is trained.
        warnings: What had to be guessed, one sentence each.
    """
    card = gpu_named(result.gpu)
    batch = "the summary's own" if setup.batch_size is None else str(setup.batch_size)
    lines = [
        f"One process on {result.gpu}: batch size {batch}, optimizer {setup.optimizer}, precision {setup.precision}"
        + (", gradient checkpointing" if setup.gradient_checkpointing else ""),
        "",
    ]
    for key, value in result.breakdown_bytes.items():
        share = value / max(result.estimate_bytes, 1)
        lines.append(f"  {key:<12}{to_mib_nearest(value):>9} MiB {share:>5.0%}  {_WHAT.get(key, '')}")
    lines += [
        f"  {'expected':<12}{to_mib_nearest(result.estimate_bytes):>9} MiB"
        "        what nvidia-smi would show at the peak",
        f"  {'to book':<12}{to_mib_up(result.upper_bytes):>9} MiB        {_trust(result.confidence)};"
        f" {shards(result.upper_bytes)} shards of {SHARD_MIB} MiB",
        "",
        f"Estimator: {result.estimator}; network: {result.family}.",
        f"Under MPS {to_mib_nearest(card.mps_client_bytes)} MiB of the base are a client's context; the server of"
        f" all of a user's jobs holds {to_mib_nearest(card.mps_server_bytes)} MiB more, which no job books.",
        *(
            line[0].upper() + line[1:] + "; each holds for 80 % of jobs."
            for line in _activity_text(result.activity)
        ),
    ]
    return "\n".join([*lines, *(f"note: {text}" for text in (*warnings, *result.warnings))])


def _trust(confidence: float | None) -> str:
    if confidence is None:
        return "no measurement says how often it is exceeded"
    return f"exceeded by at most {1 - confidence:.0%} of jobs"


def as_sbatch(result: Estimate, said: Directives, warnings: tuple[str, ...]) -> str:
    """Return the lines to put into a job script, and the same as a command.

    Args:
        result: The estimate.
        said: The directives to write.
        warnings: What had to be guessed, one sentence each.
    """
    import shlex  # only this form needs it

    words = directive_words(said)
    line = "#RAD " + " ".join(shlex.quote(word) if " " in word else word for word in words)
    comment = "rad:" + ",".join(f"'{word}'" if "," in word or " " in word else word for word in words)
    lines = [
        "# Add these lines above the first command of the job script:",
        "#SBATCH --gpus=1",
        line,
        "# or submit with:",
        f"# sbatch --gpus=1 --comment={shlex.quote(comment)} job.sh",
        f"# {to_mib_up(result.upper_bytes)} MiB will be booked: {shards(result.upper_bytes)} x {SHARD_MIB} MiB",
    ]
    return "\n".join([*lines, *(f"# note: {text}" for text in (*warnings, *result.warnings))])


def directive_words(said: Directives) -> list[str]:
    """Write directives as key=value words; what has its default is left out."""
    setup, default = said.setup, TrainingSetup()
    words = [f"model={said.model}"] if said.model else []
    words += [
        f"{key}={getattr(setup, key)}"
        for key in ("batch_size", "seq_len", "optimizer", "precision")
        if getattr(setup, key) != getattr(default, key)
    ]
    return words + (["gradient_checkpointing=yes"] if setup.gradient_checkpointing else [])
