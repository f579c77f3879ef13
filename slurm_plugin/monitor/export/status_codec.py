"""Convert a node's state to the JSON that /status returns, and back."""

from __future__ import annotations

import json
from dataclasses import asdict

from slurm_plugin.core.errors import WireError
from slurm_plugin.monitor.export.status import VERSION, GpuStatus, Happened, JobStatus, NodeStatus


def to_text(status: NodeStatus) -> bytes:
    """Return a node's state as JSON, for another machine."""
    return json.dumps({"v": VERSION, **asdict(status)}, separators=(",", ":")).encode("ascii")


def from_text(text: bytes) -> NodeStatus:
    """Return the state sent by another machine.

    Raises:
        WireError: It is not the output of `to_text`, or of another version.
    """
    try:
        row = json.loads(text)
        if row["v"] != VERSION:
            raise WireError(f"it speaks version {row['v']!r:.20}, this is {VERSION}; install both again")
        return NodeStatus(
            host=str(row["host"]),
            time_s=float(row["time_s"]),
            gpus=tuple(
                GpuStatus(
                    **{
                        **{name: gpu[name] for name in _GPU},
                        "jobs": tuple(
                            JobStatus(**{n: job[n] for n in _JOB if n in job}) for job in gpu["jobs"]
                        ),
                    }
                )
                for gpu in row["gpus"]
            ),
            happened=tuple(
                Happened(time_s=float(one["time_s"]), job_id=int(one["job_id"]), event=str(one["event"]))
                for one in row["happened"]
            ),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
        raise WireError(f"not a node's state: {exc!r:.80}") from exc


_GPU = tuple(GpuStatus.__dataclass_fields__)

_JOB = tuple(JobStatus.__dataclass_fields__)
