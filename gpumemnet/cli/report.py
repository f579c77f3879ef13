"""What `rad-estimate` prints: JSON, a line, an explanation, or the lines to add to a job script."""

from __future__ import annotations

import json
from dataclasses import dataclass

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


def shards(n_bytes: int) -> int:
    """Return the number of shards that hold this many bytes."""
    return -(-n_bytes // (SHARD_MIB * MIB))


@dataclass(frozen=True, slots=True, kw_only=True)
class Booked:
    """What is booked of an estimate.

    Attributes:
        n_bytes: So much.
        share: Share of jobs for which that is enough; None if no measurement says it.
        most_bytes: What the job may hold at most.
    """

    n_bytes: int
    share: float | None
    most_bytes: int

    @classmethod
    def of(cls, result: Estimate, confidence: float | None) -> Booked:
        """Return what is booked.

        Args:
            result: What the job needs.
            confidence: Share of jobs that it shall be enough for (0.5 to 0.999); None books the bound.
        """
        if confidence is None or result.quantiles is None:
            return cls(n_bytes=result.upper_bytes, share=result.confidence, most_bytes=result.upper_bytes)
        n_bytes = result.quantile(confidence)
        return cls(n_bytes=n_bytes, share=confidence, most_bytes=max(n_bytes, result.upper_bytes))

    def words(self) -> str:
        """Return it in words."""
        safe = "" if self.share is None else f" ({self.share * 100:g} % safe)"
        most = f"; at most {to_mib_up(self.most_bytes)} MiB" if self.most_bytes > self.n_bytes else ""
        return f"{to_mib_up(self.n_bytes)} MiB{safe} = {shards(self.n_bytes)} shards of {SHARD_MIB} MiB{most}"


def as_json(result: Estimate, booked: Booked, warnings: tuple[str, ...]) -> str:
    """Return the estimate as one JSON object; its keys are a stable contract.

    Args:
        result: The estimate.
        booked: What is booked of it.
        warnings: What had to be guessed, one sentence each.
    """
    return json.dumps(
        {
            "version": 1,
            "family": result.family,
            "estimator": result.estimator,
            "estimate_mib": to_mib_nearest(result.estimate_bytes),
            "booked_mib": to_mib_up(booked.n_bytes),
            "upper_mib": to_mib_up(result.upper_bytes),
            "confidence": result.confidence,
            "shards": shards(booked.n_bytes),
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


def as_text(result: Estimate, booked: Booked, warnings: tuple[str, ...]) -> str:
    """Return the estimate in one line, then the warnings.

    Args:
        result: The estimate.
        booked: What is booked of it.
        warnings: What had to be guessed, one sentence each.
    """
    head = (
        f"needs about {to_mib_nearest(result.estimate_bytes)} MiB; books {booked.words()}"
        f" ({result.family}, {result.gpu})"
    )
    return "\n".join(
        [head, *_activity_text(result.activity), *(f"note: {text}" for text in (*warnings, *result.warnings))]
    )


def as_explanation(result: Estimate, booked: Booked, setup: TrainingSetup, warnings: tuple[str, ...]) -> str:
    """Return where the memory goes and what was assumed.

    Args:
        result: The estimate.
        booked: What is booked of it.
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
        f"  {'to book':<12}{to_mib_up(booked.n_bytes):>9} MiB        {_trust(booked.share)};"
        f" {shards(booked.n_bytes)} shards of {SHARD_MIB} MiB",
        *_cap_line(booked),
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


def _cap_line(booked: Booked) -> list[str]:
    """Return a line on the cap where that is more than what is booked."""
    if booked.most_bytes <= booked.n_bytes:
        return []
    return [f"  {'cap':<12}{to_mib_up(booked.most_bytes):>9} MiB        while nobody else needs the memory"]


def _trust(confidence: float | None) -> str:
    if confidence is None:
        return "no measurement says how often it is exceeded"
    return f"exceeded by at most {1 - confidence:.0%} of jobs"


def as_sbatch(result: Estimate, booked: Booked, said: Directives, warnings: tuple[str, ...]) -> str:
    """Return the lines to put into a job script, and the same as a command.

    Args:
        result: The estimate.
        booked: What is booked of it.
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
        f"# {to_mib_up(booked.n_bytes)} MiB will be booked: {shards(booked.n_bytes)} x {SHARD_MIB} MiB",
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
    if said.confidence is not None:
        words.append(f"confidence={said.confidence}")
    return words + (["gradient_checkpointing=yes"] if setup.gradient_checkpointing else [])
