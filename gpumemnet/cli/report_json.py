"""Output of `rad-estimate --json`."""

from __future__ import annotations

import json

from gpumemnet.cli.cluster import SbatchAnswer, Scheduled
from gpumemnet.cli.reported import Reported
from gpumemnet.estimate import Activity
from gpumemnet.units import to_mib_nearest, to_mib_up


def as_json(reported: Reported) -> str:
    """Return the results as one JSON object; its keys are a stable contract."""
    tree: dict[str, object] = {"version": 1}
    result, booked = reported.result, reported.booked
    if result is not None and booked is not None:
        tree |= {
            "family": result.family,
            "estimator": result.estimator,
            "estimate_mib": to_mib_nearest(result.estimate_bytes),
            "booked_mib": to_mib_up(booked.n_bytes),
            "confidence": booked.share,
            "limit_mib": to_mib_up(booked.limit_bytes),
            "upper_mib": to_mib_up(result.upper_bytes),
            "shards": booked.shards,
            "shard_mib": booked.shard_mib,
            "gpu": result.gpu,
            "breakdown_mib": {key: to_mib_nearest(value) for key, value in result.breakdown_bytes.items()},
            "warnings": [*reported.warnings, *result.warnings],
            "activity": None if result.activity is None else _activity_json(result.activity),
        }
    if reported.submitted is not None:
        tree["sbatch"] = _submitted_json(reported.submitted, reported.scheduled)
    return json.dumps(tree)


def _submitted_json(submitted: SbatchAnswer, scheduled: Scheduled | None) -> dict[str, object]:
    tree: dict[str, object] = {
        "says": list(submitted.messages),
        "refusal": submitted.refusal,
        "partition": submitted.partition,
        "gres": submitted.gres,
        "decision": submitted.decision,
        "learned": submitted.learned or None,
    }
    if scheduled is not None:
        tree |= {"slurm": list(scheduled.lines), "starts": scheduled.starts}
    return tree


def _activity_json(activity: Activity) -> dict[str, object]:
    numbers = {name: getattr(activity, name) for name in ("step_s", "smact", "busy", "dram")}
    return {"gpu": activity.gpu} | {
        name: {"value": round(n.value, 5), "low": round(n.low, 5), "high": round(n.high, 5)}
        for name, n in numbers.items()
    }
