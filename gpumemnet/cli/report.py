"""What `rad-estimate` prints: JSON, a few lines, an explanation, or the lines to add to a job script."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, replace

from gpumemnet.cli.cluster import Asked, Verdict
from gpumemnet.cli.question import comment_words, directive_words
from gpumemnet.directives.parse import Directives
from gpumemnet.estimate import Activity, Estimate
from gpumemnet.gpus import Gpu
from gpumemnet.units import MIB, human, to_mib_nearest, to_mib_up

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Booked:
    """What is booked of an estimate.

    Attributes:
        n_bytes: So much.
        share: Share of jobs for which that is enough; None if no measurement says it.
        most_bytes: What the job may hold at most.
        shard_bytes: What one shard stands for.
    """

    n_bytes: int
    share: float | None
    most_bytes: int
    shard_bytes: int = SHARD_MIB * MIB

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

    def in_cluster(self, verdict: Verdict) -> Booked:
        """Return what a cluster books of it: what sbatch says, in shards of its size."""
        n_bytes = verdict.booked_bytes or verdict.capacity_bytes or self.n_bytes
        most_bytes = max(n_bytes, self.most_bytes) if verdict.booked_bytes else n_bytes
        shard_bytes = verdict.shard_bytes or self.shard_bytes
        return replace(self, n_bytes=n_bytes, most_bytes=most_bytes, shard_bytes=shard_bytes)

    @property
    def shards(self) -> int:
        """Return the number of shards that hold it."""
        return -(-self.n_bytes // self.shard_bytes)

    @property
    def shard_mib(self) -> int:
        """Return what one shard stands for, in MiB."""
        return self.shard_bytes // MIB

    def words(self) -> str:
        """Return it in words."""
        safe = "" if self.share is None else f" ({self.share * 100:g} % safe)"
        more = (
            f", up to {human(self.most_bytes)} while nobody needs it"
            if self.most_bytes > self.n_bytes
            else ""
        )
        return f"{human(self.n_bytes)}{safe}{more}: {self.shards} shards of {self.shard_mib} MiB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """All that there is to tell.

    Attributes:
        result: What the job needs; None if nothing says it.
        booked: What is booked of it; None likewise.
        card: Type of GPU.
        said: What the user says of the job.
        warnings: What had to be guessed, one sentence each.
        verdict: What sbatch would do; None where no cluster is meant.
        asked: What Slurm itself answers; None if it was not asked.
    """

    result: Estimate | None
    booked: Booked | None
    card: Gpu
    said: Directives
    warnings: tuple[str, ...] = ()
    verdict: Verdict | None = None
    asked: Asked | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what had to be guessed and sbatch does not say already."""
        told = () if self.verdict is None else self.verdict.says
        all_of_them = (*self.warnings, *(self.result.warnings if self.result is not None else ()))
        return tuple(text for text in all_of_them if f"RAD: {text}" not in told)


def as_json(told: Told) -> str:
    """Return it as one JSON object; its keys are a stable contract.

    Args:
        told: What there is to tell.
    """
    tree: dict[str, object] = {"version": 1}
    result, booked = told.result, told.booked
    if result is not None and booked is not None:
        tree |= {
            "family": result.family,
            "estimator": result.estimator,
            "estimate_mib": to_mib_nearest(result.estimate_bytes),
            "booked_mib": to_mib_up(booked.n_bytes),
            "upper_mib": to_mib_up(result.upper_bytes),
            "confidence": result.confidence,
            "shards": booked.shards,
            "shard_mib": booked.shard_mib,
            "gpu": result.gpu,
            "breakdown_mib": {key: to_mib_nearest(value) for key, value in result.breakdown_bytes.items()},
            "warnings": [*told.warnings, *result.warnings],
            "activity": None if result.activity is None else _activity_json(result.activity),
        }
    if told.verdict is not None:
        tree["sbatch"] = _verdict_json(told.verdict, told.asked)
    return json.dumps(tree)


def _reserved_text(result: Estimate, booked: Booked) -> str:
    if result.estimator == "stated":
        return f"reserves {booked.words()}, as stated"
    return f"needs about {human(result.estimate_bytes)}; reserves {booked.words()} ({result.family}, {result.gpu})"


def _verdict_json(verdict: Verdict, asked: Asked | None) -> dict[str, object]:
    tree: dict[str, object] = {
        "says": list(verdict.says),
        "refusal": verdict.refusal,
        "partition": verdict.partition,
        "gres": verdict.gres,
        "decision": verdict.decision,
        "learned": verdict.learned or None,
    }
    if asked is not None:
        tree |= {"slurm": list(asked.lines), "starts": asked.starts}
    return tree


def _verdict_text(verdict: Verdict | None, asked: Asked | None) -> list[str]:
    """Return what sbatch shows, what the job asks for, and what Slurm itself answered."""
    if verdict is None:
        return []
    lines = [f"sbatch: {line}" for line in verdict.says]
    if verdict.refusal is not None:
        return [*lines, f"sbatch: error: {verdict.refusal}", *_asked_text(asked)]
    where = f" in partition {verdict.partition}" if verdict.partition else ""
    as_it_is = "" if verdict.capacity_bytes else "; RAD leaves it as it is"
    lines.append(f"asks Slurm for {verdict.gres or 'no GPU'}{where}{as_it_is}")
    return [*lines, *_asked_text(asked)]


def _asked_text(asked: Asked | None) -> list[str]:
    return [] if asked is None else [f"Slurm says: {line}" for line in asked.lines]


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


def as_text(told: Told) -> str:
    """Return it in a few lines: what sbatch says, or the estimate where no cluster is meant; then the notes.

    Args:
        told: What there is to tell.
    """
    result, booked = told.result, told.booked
    lines = _verdict_text(told.verdict, told.asked)
    if result is not None and booked is not None:
        if told.verdict is None:
            lines.append(_reserved_text(result, booked))
        lines += _activity_text(result.activity)
    return "\n".join([*lines, *(f"note: {text}" for text in told.notes)])


def as_explanation(told: Told) -> str:
    """Return where the memory goes and what was assumed.

    Args:
        told: What there is to tell.
    """
    result, booked, card, setup = told.result, told.booked, told.card, told.said.setup
    if result is None or booked is None:
        return as_text(told)
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
        f"  {'reserved':<12}{to_mib_up(booked.n_bytes):>9} MiB        {_trust(booked.share)};"
        f" {booked.shards} shards of {booked.shard_mib} MiB",
        *_cap_line(booked),
        "",
        *_verdict_text(told.verdict, told.asked),
        f"Estimator: {result.estimator}; network: {result.family}.",
        *_learned_line(told.verdict),
        f"Under MPS {to_mib_nearest(card.mps_client_bytes)} MiB of the base are a client's context; the server of"
        f" all of a user's jobs holds {to_mib_nearest(card.mps_server_bytes)} MiB more, which no job books.",
        *(
            line[0].upper() + line[1:] + "; each holds for 80 % of jobs."
            for line in _activity_text(result.activity)
        ),
    ]
    return "\n".join([*lines, *(f"note: {text}" for text in told.notes)])


def _learned_line(verdict: Verdict | None) -> list[str]:
    """Return a line on what runs of this site changed; none if nothing."""
    if verdict is None or not verdict.learned:
        return []
    return [f"{verdict.learned[0].upper()}{verdict.learned[1:]}."]


def _cap_line(booked: Booked) -> list[str]:
    """Return a line on the cap where that is more than what is booked."""
    if booked.most_bytes <= booked.n_bytes:
        return []
    return [f"  {'cap':<12}{to_mib_up(booked.most_bytes):>9} MiB        while nobody else needs the memory"]


def _trust(confidence: float | None) -> str:
    if confidence is None:
        return "no measurement says how often it is exceeded"
    return f"exceeded by at most {1 - confidence:.0%} of jobs"


def as_sbatch(told: Told) -> str:
    """Return the lines to put into a job script, and the same as a command.

    Args:
        told: What there is to tell.
    """
    words = directive_words(told.said)
    line = "#RAD " + " ".join(shlex.quote(word) if " " in word else word for word in words)
    comment = comment_words(told.said)
    lines = [
        "# Add these lines above the first command of the job script:",
        "#SBATCH --gpus=1",
        line,
        "# or submit with:",
        f"# sbatch --gpus=1 --comment={shlex.quote(comment)} job.sh",
    ]
    if (booked := told.booked) is not None:
        lines.append(f"# {human(booked.n_bytes)} will be reserved: {booked.shards} x {booked.shard_mib} MiB")
    return "\n".join([*lines, *(f"# note: {text}" for text in told.notes)])
