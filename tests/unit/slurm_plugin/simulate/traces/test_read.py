"""Both forms of a trace are read; what is wrong with a file is said in one line."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.units import GIB, MIB
from slurm_plugin.simulate.traces.job import compressed
from slurm_plugin.simulate.traces.read import read_trace
from slurm_plugin.simulate.traces.sacct import SACCT_FIELDS, UNREADABLE

SACCT = f"""{SACCT_FIELDS.replace(",", "|")}
7|train|ann|vision|gpu|2026-10-01T10:00:00|2026-10-01T10:05:00|2026-10-01T11:05:00|120|1|COMPLETED|cpu=4,gres/gpu=1||
7.batch|batch||||2026-10-01T10:05:00|2026-10-01T10:05:00|2026-10-01T11:05:00||1|COMPLETED|cpu=4|gres/gpumem=12G,gres/gpuutil=40|
8|cpu|ann|vision|cpu|2026-10-01T10:01:00|2026-10-01T10:05:00|2026-10-01T11:05:00|120|1|COMPLETED|cpu=4||
9|wide|bob|speech|gpu|2026-10-01T10:02:00|2026-10-01T10:05:00|2026-10-01T11:05:00|120|2|COMPLETED|cpu=4,gres/gpu:a100=8||
10|waits|bob|speech|gpu|2026-10-01T10:03:00|Unknown|Unknown|UNLIMITED|1|PENDING|gres/gpu=1||
11|big|bob|speech|gpu|2026-10-01T09:59:00|2026-10-01T10:05:00|2026-10-01T10:06:00|UNLIMITED|1|FAILED|gres/gpu:a100=4||
"""


def test_sacct(tmp_path: Path) -> None:
    (tmp_path / "jobs.txt").write_text(SACCT)
    trace = read_trace(tmp_path / "jobs.txt")
    first, second = trace.jobs
    assert (first.workload, first.gpus, first.submit_s, first.duration_s) == ("bob/big", 4, 0.0, 60.0)
    assert (first.limit_s, first.memory_bytes) == (None, None)
    assert (first.user, first.account, second.user, second.account) == ("bob", "speech", "ann", "vision")
    assert (second.submit_s, second.duration_s, second.limit_s) == (60.0, 3600.0, 7200.0)
    assert second.memory_bytes == 12 * GIB, "a step's peak belongs to its job"
    assert trace.left_out == {"without GPUs": 1, "on several nodes": 1, "not ended": 1}


def test_sacct_prints_names_as_they_are(tmp_path: Path) -> None:
    """A quote in a job's name must not swallow the lines behind it, nor may a | stop all."""
    head, *rows = SACCT.splitlines()
    quoted, barred = rows[0].replace("train", '"train'), rows[0].replace("7|train", "12|a|b")
    (tmp_path / "jobs.txt").write_text("\n".join([head, quoted, *rows[1:], barred]))
    trace = read_trace(tmp_path / "jobs.txt")
    assert [job.workload for job in trace.jobs] == ["bob/big", 'ann/"train']
    assert trace.left_out[UNREADABLE] == 1


@pytest.mark.parametrize("name", ["a\u2028b", "a\x0bb", "a\x85b", "a\x1cb", "a\rb", "\udcff"])
def test_only_a_line_end_ends_a_record(tmp_path: Path, name: str) -> None:
    content = SACCT.replace("train", name).encode(errors="surrogateescape")
    (tmp_path / "jobs.txt").write_bytes(content)
    trace = read_trace(tmp_path / "jobs.txt")
    assert [job.gpus for job in trace.jobs] == [4, 1]
    assert UNREADABLE not in trace.left_out


def test_a_line_end_in_a_name_costs_that_job_alone(tmp_path: Path) -> None:
    (tmp_path / "jobs.txt").write_text(SACCT.replace("7|train|", "7|tr\nain|"))
    trace = read_trace(tmp_path / "jobs.txt")
    assert [job.workload for job in trace.jobs] == ["bob/big"]
    assert trace.left_out[UNREADABLE] == 2


FORGED = (
    "x\n99|forged|eve|gpu|2026-10-01T09:00:00|2026-10-01T09:05:00|2026-10-01T09:06:00|1|1|FAILED|gres/gpu=8||"
)


def test_behind_a_separator_of_the_admin_s_no_name_forges_a_record(tmp_path: Path) -> None:
    mark = "0e3f31d6-9d1f"
    head, *rows = SACCT.replace("|", mark).splitlines()
    content = "".join(f"{row}{mark}\n" for row in [head, *rows])
    for forged in (FORGED, FORGED.replace("|", mark[:-2]), f"x{mark[:-2]}\n"):
        (tmp_path / "jobs.txt").write_text(content.replace("train", forged))
        trace = read_trace(tmp_path / "jobs.txt")
        assert [job.workload for job in trace.jobs] == ["bob/big", f"ann/{forged}"]
        assert trace.jobs[1].memory_bytes == 12 * GIB
        assert trace.left_out == {"without GPUs": 1, "on several nodes": 1, "not ended": 1}


def test_jobs_of_other_partitions_may_be_left_out(tmp_path: Path) -> None:
    text = SACCT.replace("11|big|bob|speech|gpu|", "11|big|bob|speech|other|")
    (tmp_path / "jobs.txt").write_text(text)
    trace = read_trace(tmp_path / "jobs.txt", "gpu")
    assert [job.workload for job in trace.jobs] == ["ann/train"]
    assert trace.jobs[0].memory_bytes == 12 * GIB, "steps have no partition and still tell the peak"
    assert trace.left_out["in another partition"] == 2


def test_shards_are_of_one_gpu_and_our_comment_shows_the_peak(tmp_path: Path) -> None:
    line = (
        "20|small|ann|vision|gpu|2026-10-01T10:00:00|2026-10-01T10:05:00|2026-10-01T11:05:00|120|1|COMPLETED|"
        "cpu=4,gres/shard=6||rad: ended estimate_mib=5000 peak_mib=4096"
    )
    (tmp_path / "jobs.txt").write_text(f"{SACCT.splitlines()[0]}\n{line}\n")
    (job,) = read_trace(tmp_path / "jobs.txt").jobs
    assert (job.gpus, job.memory_bytes) == (1, 4 * GIB)


def test_csv(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "job,arrival_s,workload,gpus,epochs,duration_min,mem_mib_a100\n1,5,vgg,1,1,2.0,300.0\n"
    )
    (job,) = read_trace(tmp_path / "t.csv").jobs
    assert (job.submit_s, job.duration_s, job.memory_bytes, job.limit_s) == (0.0, 120.0, 300 * MIB, None)


def test_compressed(tmp_path: Path) -> None:
    (tmp_path / "sacct.txt").write_text(SACCT)
    first, second = compressed(read_trace(tmp_path / "sacct.txt"), 60.0).jobs
    assert (first.submit_s, first.duration_s, first.limit_s) == (0.0, 1.0, None)
    assert (second.submit_s, second.duration_s, second.limit_s) == (1.0, 60.0, 120.0)
    assert second.memory_bytes == 12 * GIB


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "no column arrival_s"),
        ("arrival_s,workload,gpus,duration_min\n0,x,0,5\n", ":2: gpus is '0'"),
        ("arrival_s,workload,gpus,duration_min\n0,x,1,5\n1,x,one,5\n", ":3: "),
        ("arrival_s,workload,gpus,duration_min\n0,x,1,inf\n", ":2: duration_min"),
        ("arrival_s,workload,gpus,duration_min\n0,x,1\n", ":2: "),
        ("arrival_s,workload,gpus,duration_min\n", "no job in it"),
        ("", "the file is empty; name a CSV with arrival_s"),
        ("\n\n", "the file is empty; name a CSV with arrival_s"),
        ("\0\x7fELF\n", "not text .it contains zero bytes.; name a CSV with arrival_s"),
        ("JobID|Submit\0|\n", "not text .it contains zero bytes.; name a CSV with arrival_s"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        read_trace(tmp_path / "t.csv")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Path.mkdir, "Is a directory; name a CSV with"),
        (lambda path: None, "No such file or directory; name a CSV with"),
    ],
    ids=["folder", "missing"],
)
def test_what_is_no_file_is_one_line(tmp_path: Path, make: Callable[[Path], object], words: str) -> None:
    make(tmp_path / "t.csv")
    with pytest.raises(ConfigError, match=f"t.csv: {words}"):
        read_trace(tmp_path / "t.csv")


def test_a_trace_may_come_from_another_command(tmp_path: Path) -> None:
    """As in: rad simulate <(zcat trace.csv.gz)."""
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=(SACCT,))
    writer.start()
    found = read_trace(tmp_path / "pipe")
    writer.join()
    assert len(found.jobs) == 2


@pytest.mark.parametrize(
    "row",
    [
        "0,a,1,1,inf,",
        "0,a,1,1,nan,",
        "0,a,1,1,1e309,",
        "0,a,1,1,-5,",
        "0,a,1,1,10,nan",
        "0,a,1,1,10,-4",
        "0,a,1,1,10,0",
        "0,a,1,nan,10,",
        "nan,a,1,1,1,",
        "-1,a,1,1,1,",
        "0,a,1,1e300,1,",
        f"0,a,{10**30},1,1,",
        f"0,a,{'9' * 5000},1,1,",
        f"0,a,1,1,{'9' * 5000},",
        "0,a,1.5,1,,",
        "0,a,1",
        f"0,{'x' * 200_000},1,1,1,",
    ],
    ids=lambda row: row[:24],
)
def test_no_number_of_a_csv_is_believed_that_is_none(tmp_path: Path, row: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"arrival_s,workload,gpus,duration_min,mem_mib,limit_min\n{row}\n")
    with pytest.raises(ConfigError, match=r"(t.csv:2: \w+ is '|no CSV)") as caught:
        read_trace(path)
    assert len(str(caught.value).replace(str(path), "")) < 200


@pytest.mark.parametrize(
    ("old", "new"),
    [("|120|", f"|{'9' * 400}|"), ("|120|", "|\u00b2|"), ("2026-10-01T10:00:00", "0001-01-01T00:00:00")],
    ids=["a limit of 400 digits", "a digit that is no number", "the year 1"],
)
def test_a_record_with_a_number_that_is_none_costs_that_record_at_most(
    tmp_path: Path, old: str, new: str
) -> None:
    (tmp_path / "jobs.txt").write_text(
        SACCT.replace(f"7|train|ann|vision|gpu|{old}", f"7|train|ann|vision|gpu|{new}").replace(old, new, 1)
    )
    assert "bob/big" in [job.workload for job in read_trace(tmp_path / "jobs.txt").jobs]
