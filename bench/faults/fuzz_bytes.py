"""Fuzz targets: bytes of users in every field that Slurm prints, and notes in AdminComment.

Records of neighbours stand next to records of a hostile user in a table as Slurm prints it. Whatever he writes, the
neighbours' records are as without him, and his own ids, owner and numbers are what Slurm gave.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from fuzz_targets import FuzzTarget, mutate

from slurm_plugin.core.booking.gres_text import count_of, parse_gres
from slurm_plugin.core.comments.admin_comment import Note, read_signed, signed_note
from slurm_plugin.core.records.queue_position import QueuePosition
from slurm_plugin.simulate.traces.sacct import SACCT_FIELDS, rows_of, separator_of
from slurm_plugin.slurm import names
from slurm_plugin.slurm.queries import accounting, job_times, printed, queue, standings
from slurm_plugin.slurm.queries.columns import Columns, cut, records

USERS = (
    *("Comment", "Name", "JobName", "WCKey", "Account", "Dependency", "ReqTRES"),
    *("tres-per-node", "tres-per-job", "tres-per-socket", "tres-per-task"),
)
"""Columns that users write."""
KEY = bytes(range(32))
HOSTILE, NEIGHBOUR = 65534, 5
_TIME = b"2026-10-01T10:00:00"
_PIECES = (
    *(b"\n", b"\xff", b"\xe2\x80\xa8", b"\x0b", b"\x85", b"|", b" ", b"rad: requeued restart=1 "),
    *(b"submitted=1 accrued=1 priority=4294901758 - x", b"12", b"0", b"\xc3", b"_[1-9]", b"N/A", b"\r"),
)


class Reader(NamedTuple):
    """One table: its columns, the gap behind each, and what reads it into values by job id."""

    columns: Columns
    gap: int
    read: Callable[[bytes], dict[int, Any]]


def _by_id(make: Callable[[Any], Any], columns: Columns) -> Callable[[bytes], dict[int, Any]]:
    return lambda content: {each.job_id: each for each in records(content, columns, make)}


def _exact(content: bytes) -> dict[int, Any]:
    found = {}
    for row in cut(content, names.TASK_COLUMNS):
        found[int(row["JobID"])] = (names.exact_name(row), names.requeued_name(row), row["UserID"])
    return found


READERS = (
    Reader(printed.JOB_COLUMNS, 0, _by_id(printed.job_view, printed.JOB_COLUMNS)),
    Reader(printed.ONE_JOB_COLUMNS, 0, _by_id(printed.job_view, printed.ONE_JOB_COLUMNS)),
    Reader(standings.ONE_STANDING_COLUMNS, 0, _by_id(standings.standing, standings.ONE_STANDING_COLUMNS)),
    Reader(queue._COLUMNS, 0, _by_id(queue._job, queue._COLUMNS)),
    Reader(names.TASK_COLUMNS, 0, _exact),
    Reader(
        accounting._ENDED, 1, lambda content: {one.job_id: one for one in accounting.parse_ended(content)}
    ),
    Reader(accounting._COMMENT, 1, lambda content: dict(accounting.parse_comments(content))),
    Reader(job_times._SACCT, 1, lambda content: _times(content, job_times.parse_sacct)),
    Reader(
        job_times._SQUEUE, 0, lambda content: _times(cut(content, job_times._SQUEUE), job_times._of_squeue)
    ),
)


def _times(content: Any, parse: Callable[[Any, int], Any]) -> dict[int, Any]:
    found = {job_id: parse(content, job_id) for job_id in range(1, 6)}
    return {job_id: each for job_id, each in found.items() if each is not None}


def _record(reader: Reader, job_id: int, user_id: int, write: Callable[[], bytes]) -> bytes:
    values = {
        "JobID": b"%d" % job_id,
        "JobIDRaw": b"%d" % job_id,
        "ArrayJobID": b"%d" % job_id,
        "UserID": b"%d" % user_id,
        "UID": b"%d" % user_id,
        "State": b"PENDING",
        "Partition": b"gpu",
        **dict.fromkeys(("RestartCnt", "Requeue", "BatchFlag", "PriorityLong", "Nice"), b"1"),
        **dict.fromkeys(
            ("SubmitTime", "StartTime", "EndTime", "AccrueTime", "Submit", "Start", "End"), _TIME
        ),
    }
    cells = (
        (write() if name in USERS else values.get(name, b"N/A"))[:width].ljust(width) + b" " * reader.gap
        for name, width in reader.columns
    )
    return b"".join(cells) + b"\n"


def _text(rng: random.Random) -> bytes:
    kind = rng.randrange(4)
    if kind == 0:
        return rng.randbytes(rng.choice((1, 20, 255, 1023))).replace(b"\x00", b"\n")
    if kind == 1:
        return bytes([rng.randrange(1, 256)]) * rng.choice((1, 240, 256, 300, 1023))
    return b"".join(rng.choice(_PIECES) * rng.choice((1, 1, 3, 240)) for _ in range(rng.randrange(1, 12)))


def tables() -> FuzzTarget:
    """Tables of squeue and sacct with hostile records among others."""

    def make(rng: random.Random) -> tuple[int, list[tuple[int, int]], int]:
        rows = [(1, NEIGHBOUR), (2, HOSTILE), (3, NEIGHBOUR), (4, HOSTILE), (5, NEIGHBOUR)]
        rng.shuffle(rows)
        return rng.randrange(len(READERS)), rows[: rng.randrange(1, 6)], rng.getrandbits(32)

    def judge(made: tuple[int, list[tuple[int, int]], int], rng: random.Random) -> str:
        which, rows, seed = made
        reader, own = READERS[which], random.Random(seed)
        content = b"".join(
            _record(reader, job, user, (lambda: _text(own)) if user == HOSTILE else lambda: b"plain")
            for job, user in rows
        )
        quiet = b"".join(_record(reader, job, user, lambda: b"plain") for job, user in rows)
        found, expected = reader.read(content), reader.read(quiet)
        assert found.keys() == expected.keys(), "a record was lost, or forged"
        for job, user in rows:
            if user == NEIGHBOUR:
                assert found[job] == expected[job], "another's record changed"
            for name in ("user_id", "nice", "priority", "restarts", "admin_comment", "submitted_s", "state"):
                assert getattr(found[job], name, None) == getattr(expected[job], name, None), name
        return f"{len(rows)} records"

    return FuzzTarget(make, judge)


def lines() -> FuzzTarget:
    """Texts of scontrol and files of sacct with hostile names."""

    def make(rng: random.Random) -> tuple[bool, bytes]:
        return rng.random() < 0.5, _text(rng)

    def judge(made: tuple[bool, bytes], rng: random.Random) -> str:
        shown, hostile = made
        text = hostile.decode(errors="replace")
        if shown:
            true = "\n     Nodes=n0 CPU_IDs=0 Mem=100 GRES=shard:3(IDX:0)\n"
            forged = "\n     Nodes=n0 CPU_IDs=0 Mem=1 GRES=shard:40(IDX:0)\n"
            given = printed.parse_given(f"JobId=7 JobName={text}{forged}{true}   Comment={text}{forged}\n")
            assert count_of(parse_gres(given), "shard") <= 3, "more than Slurm gave"
            return "shown"
        mark = f"{rng.getrandbits(64):016x}-"
        fields = SACCT_FIELDS.split(",")
        row = [*["x"] * (len(fields) - 1), "end"]
        odd = ["7", text, *row[2:]]
        content = "".join(mark.join([*each, "\n"]) for each in (fields, row, odd, row))
        assert separator_of(content.partition("\n")[0]) == mark
        first, second, third = rows_of(content, mark)
        assert first == third == dict(zip(fields, row, strict=True)), "another's record changed"
        assert second is not None and second["JobName"] == text
        return "listed"

    return FuzzTarget(make, judge)


def notes() -> FuzzTarget:
    """Notes in AdminComment that were changed, or copied from another job or owner."""
    position = QueuePosition(submitted_s=1795463013, accrues_s=1795463013, priority=4294901758)
    true = Note(event="requeued", start_in_s=15, restart=1, position=position, detail="no idle GPU")
    texts = tuple(
        signed_note(true, job_id=job_id, user_id=user_id, key=KEY)
        for job_id, user_id in ((7, NEIGHBOUR), (8, NEIGHBOUR), (7, HOSTILE))
    )

    def make(rng: random.Random) -> str:
        return mutate(rng.choice(texts), rng, others=texts)

    def judge(text: str, rng: random.Random) -> str:
        found = read_signed(text, job_id=7, user_id=NEIGHBOUR, key=KEY)
        assert (found is not None) == (text == texts[0]), "a note that is not signed for this job"
        return "refused" if found is None else "as it was signed"

    return FuzzTarget(make, judge)


TARGETS: dict[str, Callable[[], FuzzTarget]] = {"tables": tables, "lines": lines, "notes": notes}
