"""What observe mode would have done in a week, from radd's log."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from slurm_plugin.admin.cli import main
from slurm_plugin.admin.observe_mode import observed_in
from slurm_plugin.core.booking.decide import decide
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.config.load import Config, PartitionConfig
from slurm_plugin.core.logs.events import Entry, EventKind, LogEvent, to_line
from slurm_plugin.core.records.submission import GresItem, JobRequest, MemoryEstimate, UserDirectives
from slurm_plugin.core.units import GIB
from slurm_plugin.radd.protocol.reply import log_line

CONFIG = Config(
    mode="observe",
    partitions={"gpu": PartitionConfig(collocate=True, gpu_memory_mib=40 * 1024, shards_per_gpu=40)},
)


def line(
    time_s: float, need_gib: int | None, *, gpus: int = 1, nodes: int = 1, partition: str = "gpu"
) -> bytes:
    request = JobRequest(
        user_id=1000,
        partition=partition,
        gres=(GresItem(name="gpu", count=gpus),) if gpus else (),
        nodes=nodes,
    )
    estimate = None
    if need_gib is not None:
        estimate = MemoryEstimate(
            estimate_bytes=need_gib * GIB, upper_bytes=need_gib * GIB, confidence=0.99, source="stated"
        )
    rewrite = decide(request, UserDirectives(), estimate, config=CONFIG)
    event = LogEvent(kind=EventKind.SUBMITTED, detail=f"submit {log_line(request, rewrite, estimate)}")
    return to_line(Entry(time_s=time_s, hook="radd", job_id=0, restart=0, after_ms=1, event=event)) + b"\n"


def test_each_gpu_job_counts_once_by_what_would_have_been_done(tmp_path: Path) -> None:
    now_s = SystemClock().now_s()
    lines = [line(now_s, need) for need in (4, 4, 8)]
    lines += [line(now_s, None), line(now_s, 70), line(now_s, 4, nodes=2), line(now_s, None, gpus=0)]
    lines += [
        line(now_s - 8 * 86400, 4),
        line(now_s, 4, partition="other"),
        b"no event decision=observe:-shared\n",
    ]
    (tmp_path / "events.jsonl").write_bytes(b"".join(lines))
    expected = {"shared": 3, "whole": 1, "unchanged": 1, "refused": 1}
    assert observed_in(tmp_path / "events.jsonl", from_s=now_s - 7 * 86400) == expected
    toml = tmp_path / "rad.toml"
    toml.write_text(f'[paths]\nlog = "{tmp_path}"\nstate = "{tmp_path}"\n')
    text = CliRunner().invoke(main, ["digest", "--config", str(toml)]).output
    assert text.endswith(
        "observe mode      of 6 GPU jobs 3 would have shared a GPU, 1 would have got whole GPUs, "
        "1 would have passed unchanged, 1 would have been refused\n"
    )
    row = json.loads(CliRunner().invoke(main, ["digest", "--json", "--config", str(toml)]).output)
    assert row["observed"] == expected


def test_a_partition_of_a_users_words_is_no_decision(tmp_path: Path) -> None:
    now_s = SystemClock().now_s()
    forged = line(now_s, 4, partition="x decision=observe:-shared\tdecision=observe:-shared")
    (tmp_path / "events.jsonl").write_bytes(forged)
    assert observed_in(tmp_path / "events.jsonl", from_s=0) == {}


def test_where_nothing_was_observed_nothing_is_said(tmp_path: Path) -> None:
    toml = tmp_path / "rad.toml"
    toml.write_text(f'[paths]\nlog = "{tmp_path}/missing"\nstate = "{tmp_path}"\n')
    (tmp_path / "peaks.jsonl").touch()
    done = CliRunner().invoke(main, ["digest", "--config", str(toml)])
    assert done.exit_code == 0 and "observe" not in done.output
