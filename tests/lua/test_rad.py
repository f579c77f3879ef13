from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lua.lua_programs import SHIMS, VERSIONS, FakeRadd, LuaProgram, replies
from tests.timing import within

DEADLINE_S = 0.1
PATIENT_S = 30.0
"""A deadline that no answer of these tests misses, whatever else the machine does."""

LATE_S = 1.0
"""Most that a submission may take with a radd that never answers; the rest is the machine being busy."""


def has(lua: str, module: str) -> bool:
    return (
        subprocess.run([lua, "-e", f"require '{module}'"], capture_output=True, check=False).returncode == 0
    )


LIBRARIES = [
    (lua, hidden)
    for lua in VERSIONS
    for module, hidden in (("socket.unix", "posix"), ("posix.sys.socket", "socket"))
    if has(lua, module)
]


@pytest.fixture(params=LIBRARIES, ids=lambda pair: f"{pair[0]}-without-{pair[1]}")
def library(request: pytest.FixtureRequest) -> tuple[str, str]:
    found: tuple[str, str] = request.param
    return found


@pytest.fixture
def hooks(library: tuple[str, str], tmp_path: Path) -> Iterator[LuaProgram]:
    yield from started(library, tmp_path, PATIENT_S)


@pytest.fixture
def quick_hooks(library: tuple[str, str], tmp_path: Path) -> Iterator[LuaProgram]:
    """The hooks with the deadline of a site, for a radd that does not answer."""
    yield from started(library, tmp_path, DEADLINE_S)


def started(library: tuple[str, str], folder: Path, deadline_s: float) -> Iterator[LuaProgram]:
    lua, hidden = library
    settings = json.dumps({"socket": str(folder / "radd.sock"), "deadline_s": deadline_s})
    program = LuaProgram(lua, "hooks.lua", settings, hidden)
    yield program
    program.close()


@pytest.fixture(scope="module")
def shared_hooks() -> Iterator[LuaProgram]:
    """The hooks without any radd, for many calls."""
    program = LuaProgram(VERSIONS[0], "hooks.lua", json.dumps({"socket": "/nonexistent"}), "")
    yield program
    program.close()


@pytest.fixture
def radd(tmp_path: Path) -> Iterator[Callable[..., FakeRadd]]:
    started: list[FakeRadd] = []

    def start(answer: Callable[[socket.socket, bytes], None]) -> FakeRadd:
        (tmp_path / "radd.sock").unlink(missing_ok=True)
        started.append(FakeRadd(tmp_path / "radd.sock", answer))
        return started[-1]

    yield start
    for each in started:
        each.close()


def submit(
    hooks: LuaProgram, job: dict[str, Any] | None = None, user_id: int = 1000, **more: Any
) -> dict[str, Any]:
    fields = {"gres": "gres:gpu:1", "user_id": user_id} if job is None else job
    answer = hooks.call({"op": "submit", "uid": 1000, "job": fields, **more})
    assert answer["ok"] is True, "the hook raised: later Slurm versions would refuse the job"
    return answer


def modify(hooks: LuaProgram, job: dict[str, Any], rec: dict[str, Any], uid: int) -> dict[str, Any]:
    answer = hooks.call({"op": "modify", "uid": uid, "job": job, "rec": rec})
    assert answer["ok"] is True
    assert answer["rc"] == 0
    changed: dict[str, Any] = answer["job"]
    return changed


def reply(**more: Any) -> dict[str, Any]:
    return {"v": 1, "set": {}, "env": {}, "say": [], "refuse": None, "log": "x=1", **more}


def test_radd_hears_the_request_and_its_changes_are_made(hooks: LuaProgram, radd: Any) -> None:
    fake = radd(
        replies(reply(set={"gres": "shard:12", "tres_per_job": ""}, env={"SLURM_GPUS": "", "OTHER": ""}))
    )
    job = {
        "user_id": 1000,
        "partition": "gpu",
        "tres_per_job": "gres:gpu:1",
        "num_tasks": 4294967294,
        "comment": 'my "words" \\ %d caf\udce9',
        "environment": {"SLURM_GPUS": "1", "HOME": "/h"},
        "script": "#!/bin/sh\n#RAD memory=4G\n",
        "argv0": "/home/u/job.sh",
        "het_job_offset": 4294967295,
    }
    done = submit(hooks, job)
    assert done["rc"] == 0
    assert done["job"]["gres"] == "shard:12"
    assert done["job"]["tres_per_job"] == ""
    assert done["job"]["environment"] == {"SLURM_GPUS": "", "RAD_TYPED_SLURM_GPUS": "1", "HOME": "/h"}
    assert fake.received == [
        {
            "v": 1,
            "op": "submit",
            "user_id": 1000,
            "partition": "gpu",
            "tres_per_job": "gres:gpu:1",
            "num_tasks": 4294967294,
            "comment": job["comment"],
            "script": job["script"],
            "script_name": "/home/u/job.sh",
            "heterogeneous": False,
            "interactive": False,
            "whole_nodes": False,
            "undecided": 0,
        }
    ]


@pytest.mark.parametrize(
    ("shared", "partition", "reported"),
    [
        (0, "gpu", True),  # --exclusive
        (2, "gpu", False),  # --exclusive=user
        (65534, "gpu", False),
        (65534, "alone", True),
        (65534, "gpu,alone", True),
        (65534, "alone2", False),
        (65534, None, False),
    ],
)
def test_radd_hears_of_a_job_that_takes_whole_nodes(
    hooks: LuaProgram, radd: Any, shared: int, partition: str | None, reported: bool
) -> None:
    fake = radd(replies(reply()))
    partitions = {"gpu": {"max_share": 1, "flag_default": 1}, "alone": {"max_share": 0, "flag_default": 0}}
    job = {"user_id": 1000, "gres": "gpu:1", "shared": shared}
    submit(hooks, job | ({} if partition is None else {"partition": partition}), partitions=partitions)
    partitions["gpu"]["max_share"] = 0
    submit(hooks, {"user_id": 1000, "gres": "gpu:1", "shared": 65534}, partitions=partitions)
    assert [message["whole_nodes"] for message in fake.received] == [reported, True]


@pytest.mark.parametrize(
    ("lua", "age_s", "reported"), [(lua, s, 0 <= s < 10) for lua in VERSIONS for s in (-400, 0, 2, 9, 11)]
)
def test_radd_hears_whether_slurmctld_has_just_started(
    tmp_path: Path, radd: Any, lua: str, age_s: int, reported: bool
) -> None:
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    fields = " ".join(["0"] * 18)
    (proc / "self" / "stat").write_text(f"77 (a) b) c) S {fields} {100 * 500} 1 2\n")
    (proc / "uptime").write_text(f"{500 + age_s}.25 9.00\n")
    fake = radd(replies({"v": 1}))
    settings = {"socket": str(tmp_path / "radd.sock"), "deadline_s": PATIENT_S, "proc": str(proc)}
    program = LuaProgram(lua, "hooks.lua", json.dumps(settings), "")
    submit(program)
    (proc / "uptime").write_text("100000.00 9.00\n")
    submit(program)
    program.close()
    assert [message.get("new_controller") for message in fake.received] == [True if reported else None, None]


def test_only_whole_lines_are_sent_and_radd_hears_of_rad_lines_behind_them(
    hooks: LuaProgram, radd: Any
) -> None:
    fake = radd(replies({"v": 1}))
    start = "#!/bin/sh\n#RAD memory=4G\n"
    comment = "#" * (65536 - len(start) - len("\n#RAD gpus=1")) + "\n"
    submit(hooks, {"user_id": 1, "gres": "gpu", "script": f"{start}{comment}#RAD gpus=16\n"})
    submit(hooks, {"user_id": 1, "gres": "gpu", "script": f"{start}{comment}# gpus=16\n" + "x\n" * 9})
    long = f"#!/bin/sh\n{comment * 2}#RAD gpus=16\n"
    submit(hooks, {"user_id": 1, "gres": "gpu", "script": long, "argv0": "/home/u/job.sh"})
    first, second, third = fake.received
    assert first["script"] == start + comment, "gpus=1 was never written"
    assert (first["script_goes_on"], "script_goes_on" in second) == (True, False)
    assert third["script_goes_on"] and "script" not in third and third["script_name"] == "/home/u/job.sh"


def test_radd_hears_whether_a_reservation_is_of_parts_of_nodes(hooks: LuaProgram, radd: Any) -> None:
    fake = radd(replies({"v": 1}))
    known = {"class": {"full_nodes": True}, "gpus": {"full_nodes": False}}
    for name in ("class", "gpus", "gone", ""):
        submit(hooks, {"user_id": 1, "gres": "gpu", "reservation": name}, reservations=known)
    submit(hooks, {"user_id": 1, "gres": "gpu", "reservation": "gpus"})
    assert [message.get("reserves_parts") for message in fake.received] == [None, True, None, None, None]


def test_a_script_whose_lines_are_only_meant_as_rad_lines_is_sent(hooks: LuaProgram, radd: Any) -> None:
    fake = radd(replies(reply()))
    scripts = ["# RAD memory=4G\n", "#rad memory=4G\n", "#RAD: memory=4G\n", "# a new radius\n", "#grad\n"]
    for script in scripts:
        submit(hooks, {"user_id": 1, "gres": "gpu", "script": f"#!/bin/sh\n{script}"})
    assert ["script" in message for message in fake.received] == [True, True, True, False, False]


def test_page_breaks_in_a_script_stay_white_space(hooks: LuaProgram, radd: Any) -> None:
    """They are no command, below which #RAD lines would not be read."""
    fake = radd(replies(reply()))
    submit(hooks, {"user_id": 1, "gres": "gpu", "script": "#!/bin/sh\n\f\n\v#RAD memory=4G\n"})
    assert fake.received[0]["script"] == "#!/bin/sh\n \n #RAD memory=4G\n"


def test_a_script_without_rad_lines_is_not_sent(hooks: LuaProgram, radd: Any) -> None:
    fake = radd(replies(reply()))
    submit(hooks, {"user_id": 1, "gres": "gpu", "script": "x" * 70_000 + "#RAD memory=4G"})
    submit(hooks, {"user_id": 1, "gres": "gpu", "het_job_offset": 0})
    assert "script" not in fake.received[0]
    assert (fake.received[1]["interactive"], fake.received[1]["heterogeneous"]) == (True, True)


def test_an_entry_of_scrontab_is_no_part_of_a_heterogeneous_job(hooks: LuaProgram, radd: Any) -> None:
    """Seen on 26.05.5: Slurm leaves the offset of such a job at 0, as that of a first component."""
    fake = radd(replies(reply()))
    job = {"user_id": 1, "gres": "gpu", "script": "#!/bin/sh\n", "het_job_offset": 0, "cron_job": True}
    submit(hooks, job)
    submit(hooks, {**job, "cron_job": False})
    reported = [(line["heterogeneous"], line.get("recurs")) for line in fake.received]
    assert reported == [(False, True), (True, None)] or reported == [(False, True), (True, False)]


def test_radd_hears_only_of_jobs_that_concern_it(hooks: LuaProgram, radd: Any) -> None:
    fake = radd(replies(reply()))
    submit(hooks, {"user_id": 1})
    submit(hooks, {"user_id": 1, "gres": "gres:nvme:1", "comment": "mine", "script": "#!/bin/sh\n"})
    assert fake.received == []
    for job in (
        {"tres_per_task": "cpu=1,gres/gpu=1"},
        {"gres": "gres:shard:2"},
        {"comment": "rad:memory=4G"},
    ):
        submit(hooks, {"user_id": 1, **job})
    assert len(fake.received) == 3


@pytest.mark.parametrize("comment", [" " * 60_000, "rad1:" * 12_000, "rad1:a:b" + " " * 60_000 + "x"])
def test_no_comment_keeps_slurmctld_busy(shared_hooks: LuaProgram, comment: str) -> None:
    """It waits for us: 60,000 blanks behind what looks like a booking took 24 s."""
    began_s = time.monotonic()
    submit(shared_hooks, {"user_id": 1000, "comment": f"rad1:{comment}x"})
    modify(shared_hooks, {"comment": f"rad1:{comment}x"}, {"comment": "mine"}, uid=1000)
    assert time.monotonic() - began_s < within(LATE_S)


def test_messages_of_any_text_are_shown(hooks: LuaProgram, radd: Any) -> None:
    radd(replies(reply(say=["100% of %s %d\nsecond line"], log="%s%n")))
    answer = submit(hooks)
    assert answer["said"] == ["100% of %s %d second line"]
    assert "rad: %s%n" in answer["logged"]


@pytest.mark.parametrize(("code", "rc"), [(None, -1), (2072, 2072)])
def test_a_refusal_is_said_and_returned(hooks: LuaProgram, radd: Any, code: int | None, rc: int) -> None:
    radd(replies(reply(refuse="too large: 100%", set={"gres": "shard:1"})))
    answer = submit(hooks, invalid_gres=code)
    assert (answer["rc"], answer["said"]) == (rc, ["too large: 100%"])
    assert answer["job"]["gres"] == "gres:gpu:1"


MAD = {
    "nothing": b"",
    "half a line": b'{"v":1,"set":{"gres":"shard:1"}}',
    "garbage": b"\0\xff garbage %s\n",
    "no object": b"[1,2]\n",
    "other version": b'{"v":2,"set":{"gres":"shard:1"}}\n',
    "an error": b'{"error":"no"}\n',
    "deep": b"[" * 50_000 + b"\n",
    "1 MB": b'{"v":1,"set":{"gres":"shard:1"},"log":"' + b"x" * (1 << 20) + b'"}\n',
    "a strange field": b'{"v":1,"set":{"gres":"shard:1","user_id":"0"}}\n',
    "a number": b'{"v":1,"set":{"gres":7}}\n',
    "wrong kinds": b'{"v":1,"set":"x","say":"y","env":3}\n',
}


@pytest.mark.parametrize("name", MAD)
def test_a_mad_reply_changes_nothing(hooks: LuaProgram, radd: Any, name: str) -> None:
    fake = radd(replies(MAD[name]))
    answer = submit(hooks)
    assert fake.received
    assert (answer["rc"], answer["job"]["gres"]) == (0, "gres:gpu:1")


def test_a_reply_that_comes_in_pieces_is_read(hooks: LuaProgram, radd: Any) -> None:
    def slowly(connection: socket.socket, _: bytes) -> None:
        for byte in json.dumps(reply(set={"gres": "shard:3"})).encode() + b"\n":
            connection.send(bytes([byte]))

    radd(slowly)
    assert submit(hooks)["job"]["gres"] == "shard:3"


@pytest.mark.parametrize("trickle", [False, True], ids=["silent", "trickling"])
def test_a_hung_radd_costs_the_deadline_and_is_then_left_in_peace(
    quick_hooks: LuaProgram, radd: Any, trickle: bool
) -> None:
    over = threading.Event()

    def hang(connection: socket.socket, _: bytes) -> None:
        while not over.wait(0.02):
            if trickle:
                connection.send(b" ")

    fake = radd(hang)
    for _ in range(3):
        started_s = time.monotonic()
        answer = submit(quick_hooks)
        assert time.monotonic() - started_s < within(LATE_S)
        assert (answer["rc"], answer["job"]["gres"]) == (0, "gres:gpu:1")
    over.set()
    for _ in range(20):
        assert submit(quick_hooks)["job"]["gres"] == "gres:gpu:1"
    assert len(fake.received) <= 3, "the breaker did not open"


def test_one_users_requests_do_not_open_the_breaker_for_others(hooks: LuaProgram, radd: Any) -> None:
    """Whatever makes radd fail over a user's own request costs that user alone the next half minute."""

    def refuse_one(connection: socket.socket, line: bytes) -> None:
        if json.loads(line)["user_id"] != 666:
            connection.sendall(json.dumps(reply(set={"gres": "shard:2"})).encode() + b"\n")

    fake = radd(refuse_one)
    for _ in range(10):
        assert submit(hooks, user_id=666)["job"]["gres"] == "gres:gpu:1"
    assert len(fake.received) == 3
    assert submit(hooks, user_id=1000)["job"]["gres"] == "shard:2"
    assert submit(hooks, user_id=666)["job"]["gres"] == "gres:gpu:1"
    assert len(fake.received) == 4


def test_a_radd_that_was_away_is_found_as_soon_as_it_is_back(hooks: LuaProgram, radd: Any) -> None:
    """Of 500 submissions in a minute with radd away for 14 s, 201 went on undecided: it got no more for 30 s."""
    for _ in range(10):
        assert submit(hooks)["job"]["gres"] == "gres:gpu:1"
    radd(replies(reply(set={"gres": "shard:2"})))
    back_s = time.monotonic()
    while submit(hooks)["job"]["gres"] != "shard:2":
        assert time.monotonic() - back_s < within(5), "no shim calls it"


def test_a_radd_that_answers_no_request_is_left_in_peace_by_all(hooks: LuaProgram, radd: Any) -> None:
    fake = radd(lambda connection, line: None)
    for user_id in range(1000, 1020):
        submit(hooks, user_id=user_id)
    assert len(fake.received) <= 4


@pytest.mark.parametrize(
    ("features", "counts"),
    [
        ("[a*1&b*3]", "*1*3"),
        ("a|b", None),
        ("|".join(["a rack"] * 9000), None),
        ("[" + "a*1&" * 9000, "*1" * 512),
    ],
    ids=["counts", "none", "long", "long with counts"],
)
def test_of_a_constraint_radd_hears_the_counts_of_nodes(
    hooks: LuaProgram, radd: Any, features: str, counts: str | None
) -> None:
    """Slurm takes constraints of any length, so a long one must not keep radd from deciding."""
    fake = radd(replies(reply(set={"gres": "shard:2"})))
    job = {"user_id": 1000, "gres": "gres:gpu:1", "script": "#!/bin/sh\n", "features": features}
    assert submit(hooks, job)["job"]["gres"] == "shard:2"
    assert fake.received[0].get("features") == counts


@pytest.mark.parametrize("name", ["gres", "partition", "tres_per_job", "comment"])
def test_no_request_is_longer_than_radd_reads(hooks: LuaProgram, radd: Any, name: str) -> None:
    """Found by a hostile user: 65,000 control bytes grow sixfold, are cut off, and count as radd's failure."""
    fake = radd(replies(reply(set={"gres": "shard:2"})))
    evil = "gpu\x01" * 30_000
    job = {"user_id": 666, "gres": "gres:gpu:1", "script": "#RAD " + '\x01\x7f\n"\\' * 30_000, name: evil}
    for _ in range(3):
        assert submit(hooks, job)["rc"] == 0
    assert fake.received == []
    submit(hooks, {**job, name: "gpu", "argv0": "/" + "\x01" * 5000, "comment": "\x01" * 2048})
    assert len(json.dumps(fake.received[0])) < 262_144
    assert submit(hooks)["job"]["gres"] == "shard:2"


def leave_fallback(folder: Path, *, until_s: float = 2**33, **partition: Any) -> None:
    left = {
        "v": 1,
        "until_s": until_s,
        "default_partition": "gpu",
        "partitions": {"gpu": {"shards": 39, "gpu_type": "", **partition}},
        "environment": ["SLURM_GPUS"],
    }
    (folder / "radd").mkdir(exist_ok=True)
    (folder / "radd" / "fallback.json").write_text(json.dumps(left))


@pytest.mark.parametrize(
    ("job", "gres"),
    [
        ({"gres": "gres:gpu:1"}, "shard:39"),
        ({"gres": "gres/gpu"}, "shard:39"),
        ({"gres": "gpu=1", "min_nodes": 4294967294, "ntasks_per_gpu": 65534}, "shard:39"),
        ({"tres_per_job": "gres:gpu:1"}, "shard:39"),
        ({"gres": "gres:gpu:a100:1"}, "shard:39"),
        ({"gres": "gres:gpu:a100:1", "partition": "other"}, "gres:gpu:a100:1"),
        ({"gres": "gres:gpu:h100:1"}, "gres:gpu:h100:1"),
        ({"gres": "gres:gpu:2"}, "gres:gpu:2"),
        ({"gres": "gres:gpu:10"}, "gres:gpu:10"),
        ({"gres": "gres:gpu:1,gres:nvme:1"}, "gres:gpu:1,gres:nvme:1"),
        ({"gres": "gres:shard:4"}, "gres:shard:4"),
        ({"gres": "gres:gpu:1", "min_nodes": 2}, "gres:gpu:1"),
        ({"gres": "gres:gpu:1", "max_nodes": 2}, "gres:gpu:1"),
        ({"gres": "gres:gpu:1", "features": "[a*1&b*1]"}, "gres:gpu:1"),
        ({"gres": "gres:gpu:1", "features": "a|b"}, "shard:39"),
        ({"gres": "gres:gpu:1", "num_tasks": 2, "ntasks_per_node": 1}, "gres:gpu:1"),
        ({"gres": "gres:gpu:1", "num_tasks": 33}, "gres:gpu:1"),
        ({"gres": "gres:gpu:1", "num_tasks": 17, "cpus_per_task": 2}, "gres:gpu:1"),
        ({"gres": "gres:gpu:1", "num_tasks": 32}, "shard:39"),
        ({"gres": "gres:gpu:1", "cpus_per_task": 65534, "num_tasks": 4294967294}, "shard:39"),
        ({"gres": "gres:gpu:1", "mem_per_tres": "gres:gpu:4096"}, "gres:gpu:1"),
        ({"gres": "gres:gpu:1", "ntasks_per_gpu": 2}, "gres:gpu:1"),
        ({"gres": "gres:gpu:1", "container": "/bundle"}, "gres:gpu:1"),
        ({"gres": "gres:gpu:1", "reservation": "two_gpus"}, "gres:gpu:1"),
        ({"gres": "gres:gpu:1", "het_job_offset": 0}, "gres:gpu:1"),
        ({"gres": "gres:gpu:1", "shared": 0}, "gres:gpu:1"),
        ({"gres": "gres:gpu:1", "script": ""}, "gres:gpu:1"),
    ],
    ids=str,
)
def test_without_radd_one_gpu_becomes_all_shards_of_one(
    hooks: LuaProgram, tmp_path: Path, job: dict[str, Any], gres: str
) -> None:
    leave_fallback(tmp_path, gpu_type="a100")
    submitted = {"user_id": 1000, "script": "#!/bin/sh\n", "environment": {"SLURM_GPUS": "1"}, **job}
    partition = {"max_share": 1, "flag_default": 1, "total_cpus": 64, "total_nodes": 2}
    known = {"two_gpus": {"full_nodes": False}}
    done = submit(hooks, submitted, partitions={"gpu": partition}, reservations=known)["job"]
    assert done["gres"] == gres
    if gres == "shard:39":
        assert done.get("tres_per_job", "") == "" and done["environment"]["SLURM_GPUS"] == ""
    else:
        assert done["environment"] == {"SLURM_GPUS": "1"}


@pytest.mark.parametrize("tasks", [{"num_tasks": 4}, {"ntasks_per_node": 4}], ids=str)
def test_without_radd_several_tasks_stay_on_one_node(
    hooks: LuaProgram, tmp_path: Path, tasks: dict[str, int]
) -> None:
    leave_fallback(tmp_path, gpu_type="")
    job = {"user_id": 1000, "tres_per_job": "gres:gpu:1", "script": "#!/bin/sh\n", **tasks}
    done = submit(hooks, job)["job"]
    assert (done["gres"], done["min_nodes"], done["max_nodes"]) == ("shard:39", "1", "1")


STATED = {"gres": "gres:gpu:1", "user_id": 1, "script": "#!/bin/sh\n#RAD memory=4G\n"}


@pytest.mark.parametrize(
    ("job", "falls_back", "reported"),
    [
        (STATED, False, "the job was submitted unchanged"),
        (STATED, True, "the job gets a whole GPU"),
        ({**STATED, "gres": "gres:gpu:2"}, True, "the job was submitted unchanged"),
        (
            {"gres": "gres:gpu:1", "user_id": 1, "comment": "rad:memory=4G"},
            False,
            "the job was submitted unchanged",
        ),
        ({"gres": "gres:gpu:1", "user_id": 1, "script": "#!/bin/sh\n"}, False, ""),
    ],
)
def test_a_user_with_directives_reads_that_nothing_was_decided(
    hooks: LuaProgram, tmp_path: Path, job: dict[str, Any], falls_back: bool, reported: str
) -> None:
    if falls_back:
        leave_fallback(tmp_path, gpu_type="")
    said = submit(hooks, job)["said"]
    assert len(said) == bool(reported) and all(reported in line for line in said)


def test_radd_is_informed_how_many_jobs_it_did_not_decide(hooks: LuaProgram, radd: Any) -> None:
    for _ in range(2):
        submit(hooks)
    submit(hooks, {"user_id": 1, "script": "#!/bin/sh\n"})  # not a managed job
    refuses = radd(replies({"v": 1, "error": "a submission without user_id"}))
    for _ in range(5):  # answered, and a user's own doing
        assert submit(hooks, STATED)["said"] == [
            "RAD: radd did not answer; the job was submitted unchanged; to share a GPU, cancel it and resubmit later"
        ]
    assert len(refuses.received) == 5
    fake = radd(replies(reply(set={"gres": "shard:2"})))
    for user_id in (2000, 2001):
        submit(hooks, user_id=user_id)
    assert [line["undecided"] for line in fake.received if line["user_id"] >= 2000] == [2, 2]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"v":1}', '{"v":2,"until_s":9}', '{"v":1,"until_s":9e9}', "\0" * 99]
)
def test_a_mad_fallback_changes_nothing(hooks: LuaProgram, tmp_path: Path, text: str) -> None:
    (tmp_path / "radd").mkdir()
    (tmp_path / "radd" / "fallback.json").write_text(text)
    assert submit(hooks, {"gres": "gres:gpu:1", "user_id": 1, "script": "x"})["job"]["gres"] == "gres:gpu:1"


def test_a_fallback_of_long_ago_changes_nothing(hooks: LuaProgram, tmp_path: Path) -> None:
    leave_fallback(tmp_path, until_s=time.time() - 1)
    assert submit(hooks, {"gres": "gres:gpu:1", "user_id": 1, "script": "x"})["job"]["gres"] == "gres:gpu:1"


def test_a_radd_that_accepts_no_request_costs_the_deadline(quick_hooks: LuaProgram, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "radd.sock"))
        listener.listen(0)
        waiting = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(str(tmp_path / "radd.sock"))
        started_s = time.monotonic()
        assert submit(quick_hooks)["job"]["gres"] == "gres:gpu:1"
        assert time.monotonic() - started_s < within(LATE_S)
        for each in waiting:
            each.close()


def test_no_socket_changes_nothing_and_radd_is_found_when_it_comes(hooks: LuaProgram, radd: Any) -> None:
    for _ in range(2):
        assert submit(hooks)["job"]["gres"] == "gres:gpu:1"
    radd(replies(reply(set={"gres": "shard:2"})))
    assert submit(hooks)["job"]["gres"] == "shard:2"


def test_a_field_that_slurm_refuses_takes_the_others_back(hooks: LuaProgram, radd: Any) -> None:
    radd(replies(reply(set={"gres": "shard:2", "comment": "rad1", "tres_per_job": ""})))
    job = {"user_id": 1, "gres": "gres:gpu:1", "tres_per_job": "gres:gpu:1", "comment": "mine"}
    answer = submit(hooks, job, refused="tres_per_job")
    assert answer["rc"] == 0
    assert answer["job"]["gres"] == "gpu:1", "Slurm adds the prefix again, also to one that is there"
    assert (answer["job"]["tres_per_job"], answer["job"]["comment"]) == ("gres:gpu:1", "mine")


SIGNED_BOOKING = "rad2:shared:gpus=1:mem=12288:try=0:retry=1:ask=12:part=aacd834e:0123456789abcdef"
OTHER = "rad2:whole:gpus=1:try=0:retry=1:part=aacd834e.0123abcd:fedcba9876543210"
WHOLE = "rad2:whole:gpus=1:try=0:retry=1:ask=39:part=aacd834e:0123456789abcdef"
OLD = "rad1:whole:gpus=1:try=0:retry=1:fedcba9876543210"


def test_a_booking_brought_along_is_dropped_even_without_radd(hooks: LuaProgram) -> None:
    answer = submit(hooks, {"user_id": 1, "comment": f"mine {SIGNED_BOOKING} too {OTHER}"})
    assert answer["job"]["comment"] == "mine too"
    assert submit(hooks, {"user_id": 1, "comment": f"mine {OLD}"})["job"]["comment"] == "mine"
    for hidden in (
        f"ra{SIGNED_BOOKING}d2:whole:gpus=1:x",
        f"rad2:{SIGNED_BOOKING}",
        f"rad2:whole{SIGNED_BOOKING}:gpus=1:x",
        f"RAD2:{SIGNED_BOOKING}rad2:",
    ):
        left = submit(hooks, {"user_id": 1, "comment": hidden})["job"]["comment"]
        assert "rad2:" not in left, left


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (f"words {SIGNED_BOOKING}", "other words", f"other words {SIGNED_BOOKING}"),
        (f"words {SIGNED_BOOKING}", "", SIGNED_BOOKING),
        (f"words {SIGNED_BOOKING}", f"x {OTHER}", f"x {SIGNED_BOOKING}"),
        ("words", f"x {OTHER}", "x"),
        (
            f"words {SIGNED_BOOKING}",
            "y" * 1500,
            "y" * (1023 - 1 - len(SIGNED_BOOKING)) + " " + SIGNED_BOOKING,
        ),
    ],
)
def test_users_change_words_and_not_the_booking(hooks: LuaProgram, old: str, new: str, expected: str) -> None:
    assert modify(hooks, {"comment": new}, {"comment": old}, 1000)["comment"] == expected


def test_other_changes_of_users_are_left_alone(hooks: LuaProgram) -> None:
    assert modify(hooks, {"priority": 0}, {"comment": SIGNED_BOOKING}, 1000) == {"priority": 0}


@pytest.mark.parametrize("uid", [0, 64030])
def test_root_and_slurm_may_set_any_comment_and_radd_hears_their_notes(
    hooks: LuaProgram, radd: Any, uid: int
) -> None:
    fake = radd(replies({"v": 1}))
    note = "rad: recovered start_in_s=0"
    changed = modify(
        hooks,
        {"comment": OTHER, "admin_comment": note},
        {"comment": SIGNED_BOOKING, "user_id": 1000, "job_id": 7},
        uid,
    )
    assert changed["comment"] == OTHER
    assert fake.received == [
        {"v": 1, "op": "modify", "job_id": 7, "user_id": 1000, "admin_comment": note, "comment": OTHER}
    ]
    modify(hooks, {"admin_comment": "an admin's own"}, {"comment": SIGNED_BOOKING}, uid)
    modify(hooks, {"admin_comment": note}, {"comment": SIGNED_BOOKING, "user_id": 1000, "job_id": 7}, 1000)
    assert len(fake.received) == 1, "a note that Slurm refuses a user later is none"


REQUEST = [
    {"gres": "gres:gpu:1"},
    {"gres": ""},
    {"tres_per_task": "gres:shard:1"},
    {"tres_per_job": "gres/shard:1", "min_nodes": 1},
    {"tres_per_socket": ""},
    {"partition": "70000"},
    {"num_tasks": 3},
    {"max_nodes": 2},
]
UNSET = {"min_nodes": 4294967294, "num_tasks": 4294967295, "ntasks_per_gpu": 65534, "ntasks_per_node": 65535}


@pytest.mark.parametrize("uid", [0, 1000])
@pytest.mark.parametrize("change", REQUEST, ids=str)
def test_a_changed_request_marks_the_booking(
    hooks: LuaProgram, radd: Any, uid: int, change: dict[str, Any]
) -> None:
    """Found by a hostile user: TresPerTask=gres:shard:1, then TresPerNode=, on a whole-GPU job."""
    fake = radd(replies(reply(set={"comment": f"mine {OTHER}"})))
    rec = {"comment": f"mine {SIGNED_BOOKING}", "user_id": 1000, "job_id": 7, "partition": "gpu"}
    assert modify(hooks, {**UNSET, **change}, rec, uid) == {**UNSET, **change, "comment": f"mine {OTHER}"}
    asked = {"user_id": 1000, "comment": f"mine {SIGNED_BOOKING}", "partition": "gpu"}
    names = ("gres", "tres_per_job", "tres_per_task", "min_nodes", "partition")
    asked |= {name: change[name] for name in names if change.get(name)}
    assert fake.received == [{"v": 1, "op": "change", **asked}]
    assert modify(hooks, change, {"comment": "mine"}, uid) == change
    assert modify(hooks, {**UNSET, "time_limit": 5}, rec, uid) == {**UNSET, "time_limit": 5}
    assert len(fake.received) == 1


@pytest.mark.parametrize("uid", [0, 1000])
@pytest.mark.parametrize("change", REQUEST, ids=str)
def test_without_radd_a_changed_request_drops_the_booking(
    hooks: LuaProgram, uid: int, change: dict[str, Any]
) -> None:
    assert modify(hooks, change, {"comment": f"mine {SIGNED_BOOKING}"}, uid) == {**change, "comment": "mine"}
    # An empty comment would be no change of it, and leave the booking where it is.
    assert modify(hooks, change, {"comment": SIGNED_BOOKING}, uid) == {**change, "comment": " "}


@pytest.mark.parametrize(
    ("comment", "typed", "expected"),
    [
        (f"mine {WHOLE}", "gres:gpu:1", "shard:39"),
        (WHOLE, "gres/gpu,gres/nvme:2", "shard:39,nvme:2"),
        (WHOLE, "gres:gpu:2", "gres:gpu:2"),
        (WHOLE, "gres:gpu:a100:1", "gres:gpu:a100:1"),
        (WHOLE, "gres:nvme:2", "gres:nvme:2"),
        (OTHER, "gres:gpu:1", "gres:gpu:1"),
        (SIGNED_BOOKING, "gres:gpu:1", "gres:gpu:1"),
        ("mine", "gres:gpu:1", "gres:gpu:1"),
    ],
)
def test_one_gpu_stays_the_shards_that_stand_for_it(
    hooks: LuaProgram, comment: str, typed: str, expected: str
) -> None:
    assert modify(hooks, {"gres": typed}, {"comment": comment}, 1000)["gres"] == expected


@pytest.mark.parametrize("whole", ["shard:78", "gpu:1"])
def test_radd_says_how_a_gpu_of_another_partition_is_requested(
    hooks: LuaProgram, radd: Any, whole: str
) -> None:
    fake = radd(replies(reply(set={"comment": OTHER, "gres": whole, "tres_per_job": ""})))
    typed = {"gres": "gres:gpu:1", "tres_per_job": "gres:gpu:1", "partition": "big"}
    rec = {"comment": WHOLE, "user_id": 1000, "partition": "gpu"}
    changed = modify(hooks, typed, rec, 1000)
    assert changed == {"gres": whole, "tres_per_job": "", "partition": "big", "comment": OTHER}
    assert (fake.received[0]["gres"], fake.received[0]["partition"]) == ("gres:gpu:1", "big")


def test_cpus_of_a_gpu_become_those_of_the_node(hooks: LuaProgram) -> None:
    """Slurm takes --cpus-per-gpu for gres/gpu alone."""
    typed = {"cpus_per_tres": "gres:gpu:2"}
    changed = modify(hooks, typed, {"comment": SIGNED_BOOKING}, 1000)
    assert (changed["cpus_per_tres"], changed["pn_min_cpus"]) == ("", "2")
    assert modify(hooks, typed, {"comment": "mine"}, 1000) == typed


def test_memory_of_a_gpu_becomes_that_of_the_node(hooks: LuaProgram) -> None:
    typed = {"mem_per_tres": "gres/gpu:100"}
    changed = modify(hooks, typed, {"comment": SIGNED_BOOKING}, 1000)
    assert (changed["mem_per_tres"], changed["min_mem_per_node"]) == ("", "100")
    assert modify(hooks, typed, {"comment": "mine"}, 1000) == typed


def test_a_whole_gpu_by_task_stays_the_shards_that_stand_for_it(hooks: LuaProgram) -> None:
    typed = {"tres_per_task": "gres:gpu:1"}
    assert modify(hooks, typed, {"comment": WHOLE}, 1000)["tres_per_task"] == ""
    of_two = WHOLE.replace("gpus=1:", "gpus=1:procs=2:")
    assert modify(hooks, typed, {"comment": of_two}, 1000)["tres_per_task"] == "gres:gpu:1"


def test_a_whole_gpu_by_job_stays_the_shards_that_stand_for_it(hooks: LuaProgram) -> None:
    assert modify(hooks, {"tres_per_job": "gres:gpu:1"}, {"comment": WHOLE}, 1000)["tres_per_job"] == ""
    assert modify(hooks, {"tres_per_job": "gres:gpu:2"}, {"comment": WHOLE}, 1000)["tres_per_job"] != ""


def test_a_change_whose_booking_cannot_be_marked_is_refused(hooks: LuaProgram) -> None:
    answer = hooks.call(
        {
            "op": "modify",
            "uid": 1000,
            "job": {"gres": ""},
            "rec": {"comment": SIGNED_BOOKING},
            "refused": "comment",
        }
    )
    assert (answer["ok"], answer["rc"]) == (True, -1)


def test_no_error_number_is_left_where_slurmctld_reads_it(
    hooks: LuaProgram, radd: Any, tmp_path: Path, library: tuple[str, str]
) -> None:
    """Without associations slurmctld takes a leftover errno for the result of a change of partition or account."""
    lua, _ = library
    if not has(lua, "posix.errno"):
        pytest.skip(f"{lua} has no lua-posix, through which this test reads errno")

    def left() -> int:
        change = {
            "op": "modify",
            "uid": 1000,
            "job": {"partition": "plain"},
            "rec": {"comment": SIGNED_BOOKING},
        }
        return hooks.call(change)["errno"]

    radd(replies(reply(set={"comment": OTHER})))
    assert left() == 0
    (tmp_path / "radd.sock").unlink()
    assert left() == 0


VALUES = st.sampled_from(["", "gres:gpu:1", "gres:shard:1", "gpu", "x" * 50, 0, 1, 7, 65534, 4294967294])


@given(
    change=st.dictionaries(
        st.sampled_from([*sorted({n for one in REQUEST for n in one}), "comment", "nice"]), VALUES
    ),
    uid=st.sampled_from([0, 1000]),
    words=st.text(alphabet="ab rd2:=.", max_size=30),
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_change_leaves_a_booking_that_looks_untouched(
    shared_hooks: LuaProgram, change: dict[str, Any], uid: int, words: str
) -> None:
    """The binding: after any change a booking is there only if nothing of the request was touched."""
    change = {name: value for name, value in change.items() if name != "comment" or isinstance(value, str)}
    if uid == 0:
        change.pop("comment", None)  # root writes comments as they are
    rec = {"comment": f"{words} {SIGNED_BOOKING}"}
    after = shared_hooks.call({"op": "modify", "uid": uid, "job": dict(change), "rec": rec})
    comment = after["job"].get("comment", rec["comment"])
    touched = any(
        not (isinstance(value, int) and value >= 65534)
        for name, value in change.items()
        if name not in ("comment", "nice")
    )
    assert (SIGNED_BOOKING in comment) == (not touched)
    assert "rad2:" not in comment.replace(SIGNED_BOOKING, "")


def test_a_note_does_not_need_radd(hooks: LuaProgram) -> None:
    modify(hooks, {"admin_comment": "rad: ended"}, {"user_id": 1, "job_id": 7}, 0)


@pytest.mark.parametrize("lua", VERSIONS)
def test_without_any_socket_library_jobs_go_on(lua: str, tmp_path: Path) -> None:
    program = LuaProgram(lua, "hooks.lua", json.dumps({"socket": str(tmp_path / "none")}), "socket,posix")
    answer = submit(program)
    program.close()
    assert (answer["rc"], answer["job"]["gres"]) == (0, "gres:gpu:1")
    assert "neither luasocket nor lua-posix" in answer["logged"][0]


@pytest.mark.parametrize("lua", VERSIONS)
@pytest.mark.parametrize("name", ["job_submit.lua", "cli_filter.lua"])
@pytest.mark.parametrize("modules", [True, False], ids=["installed", "modules missing"])
def test_the_site_scripts_load_and_pass_jobs_on(lua: str, name: str, modules: bool, tmp_path: Path) -> None:
    shutil.copy(SHIMS / name, tmp_path)
    if modules:
        shutil.copytree(SHIMS, tmp_path / "rad")
    check = """
        slurm = { SUCCESS = 0, ERROR = -1, log_error = function(...) io.write(string.format(...)) end }
        slurm.log_info, slurm.log_user = slurm.log_error, slurm.log_error
        assert(dofile(arg[1]) == 0)
        for _, name in ipairs({ "slurm_job_submit", "slurm_job_modify", "slurm_cli_setup_defaults",
          "slurm_cli_pre_submit", "slurm_cli_post_submit" }) do
          assert(_G[name] == nil or _G[name]({}, {}, {}, 1000) == 0)
        end"""
    (tmp_path / "check.lua").write_text(check)
    done = subprocess.run(
        [lua, str(tmp_path / "check.lua"), str(tmp_path / name)],
        capture_output=True,
        text=True,
        timeout=within(10),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert ("jobs are submitted unchanged" in done.stdout) == (not modules and name == "job_submit.lua")


@pytest.mark.parametrize("path", sorted(SHIMS.glob("*.lua")), ids=lambda path: path.name)
@pytest.mark.parametrize("lua", VERSIONS)
def test_every_file_compiles(lua: str, path: Path) -> None:
    done = subprocess.run(
        [lua, "-"], input=f"assert(loadfile('{path}'))".encode(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
