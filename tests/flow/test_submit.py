"""A submission from the hook to the answer and back: real Lua, real socket, real radd; only Slurm is missing."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lua.lua_programs import VERSIONS, LuaProgram

from slurm_plugin.admin.doctor.collect_local import ping
from slurm_plugin.core.comments import signed_comment
from slurm_plugin.core.logs.events import Entry, EventKind, from_line
from slurm_plugin.core.logs.hook_log import EVENTS
from slurm_plugin.slurm.versions import OLDEST, parse_version
from tests.timing import within

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "models"
KEY = bytes(range(32))
PATIENCE_S = within(20.0)
TOML = """
mode = "{mode}"
default_partition = "gpu"
[paths]
socket = "{folder}/radd.sock"
state = "{folder}/state"
key = "{folder}/key"
log = "{folder}/logs"
[partition.gpu]
collocate = true
gpu_memory_mib = 40000
compute_overcommit = 0.0
exclusive_form = "shards"
"""


def wait_until(condition: Callable[[], object]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, "it did not happen in time"
        time.sleep(0.001)


class Radd:
    """radd as a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "radd.sock"
        (folder / "key").write_bytes(KEY)
        (folder / "key").chmod(0o600)
        self.configure("enforce")
        self.start()

    def configure(self, mode: str) -> None:
        (self.folder / "rad.toml").write_text(TOML.format(folder=self.folder, mode=mode))

    def start(self) -> None:
        self.spawn()
        wait_until(self.answers)

    def spawn(self) -> None:
        argv = [sys.executable, "-m", "slurm_plugin.radd", "--config", str(self.folder / "rad.toml")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log)

    def connects(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(str(self.socket)) == 0

    def answers(self) -> bool:
        assert self.process.poll() is None, self.log()
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(self.socket))
                connection.sendall(b'{"op":"ping"}\n')
                return b"pong" in connection.recv(100)
            except OSError:
                return False

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def log(self) -> str:
        return (self.folder / "log").read_text()


@pytest.fixture(scope="module", params=VERSIONS)
def lua(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def radd(tmp_path: Path) -> Iterator[Radd]:
    made = Radd(tmp_path)
    yield made
    if made.process.poll() is None:
        made.process.kill()
        made.process.wait()


@pytest.fixture
def hooks(lua: str, tmp_path: Path) -> Iterator[LuaProgram]:
    # More than a user wants to wait, but these tests are about what happens, on whatever machine.
    settings = {"socket": str(tmp_path / "radd.sock"), "deadline_s": PATIENCE_S}
    program = LuaProgram(lua, "hooks.lua", json.dumps(settings), "")
    yield program
    program.close()


def decisions_in(events: Path) -> list[Entry]:
    reported = [from_line(line) for line in events.read_bytes().splitlines()]
    return [one for one in reported if one is not None and one.event.kind == EventKind.SUBMITTED]


def submit(hooks: LuaProgram, **job: Any) -> dict[str, Any]:
    batch = {"user_id": 1000, "gres": "gres:gpu:1", "script": "#!/bin/sh\n"}
    answer = hooks.call({"op": "submit", "uid": 1000, "job": {**batch, **job}})
    assert answer["ok"] is True
    return answer


@pytest.mark.usefixtures("radd")
def test_from_a_summary_to_a_signed_booking(lua: str, hooks: LuaProgram, tmp_path: Path) -> None:
    settings = {"python": sys.executable, "config": str(tmp_path / "rad.toml")}
    cli = LuaProgram(lua, "cli.lua", json.dumps(settings))
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n#RAD model={EXAMPLES}/resnet18_torchinfo.txt batch_size=32\n")
    options = {"type": "sbatch", "gpus": "1", "comment": "mine"}
    signed = cli.call({"options": options, "argv": [str(script)]})["options"]
    cli.close()
    answer = submit(
        hooks,
        gres=None,
        tres_per_job="gres:gpu:1",
        comment=signed["comment"],
        script=script.read_text(),
        environment={"SLURM_GPUS": "1"},
    )
    job = answer["job"]
    booking = signed_comment.read_signed_booking(job["comment"], user_id=1000, key=KEY)
    assert booking is not None and booking.kind == "shared"
    wait_until(lambda: decisions_in(tmp_path / "logs" / EVENTS))  # the log is written after the answer
    decisions = decisions_in(tmp_path / "logs" / EVENTS)
    assert [(one.hook, one.event.facts["user_id"]) for one in decisions] == [("radd", 1000)]
    wait_until(
        lambda: decisions[0].event.detail in (tmp_path / "log").read_text()
    )  # the text log is a view of the events
    assert job["gres"].startswith("shard:") and job["tres_per_job"] == ""
    assert job["environment"] == {"SLURM_GPUS": "", "RAD_TYPED_SLURM_GPUS": "1"}
    assert job["comment"].startswith("mine rad2:")
    assert len(answer["said"]) == 1 and "; booked 3.0 GiB" in answer["said"][0]


@pytest.mark.usefixtures("radd")
def test_bad_words_and_too_much_are_reported(hooks: LuaProgram) -> None:
    wrong = submit(hooks, script="#!/bin/sh\n#RAD batch_size=abc\n", argv0="/home/u/job.sh")
    assert wrong["rc"] == 0 and wrong["job"]["gres"] == "shard:39"
    assert wrong["said"][0].startswith("RAD: /home/u/job.sh:2: batch_size=abc")
    large = submit(hooks, comment="rad:memory=100G")
    assert large["rc"] == -1 and "--gpus=3" in large["said"][0]


@pytest.mark.usefixtures("radd")
def test_hostile_text_in_every_field_is_survived(hooks: LuaProgram) -> None:
    evil = "\x01\t\"'\\%s%n{}[]\udcff\udc80é\u2028 rad2:x rad.profile:p1"
    for name in ("comment", "partition", "gres", "tres_per_job", "tres_per_task", "tres_bind", "script"):
        assert submit(hooks, **{name: evil + "#RAD"})["rc"] in (0, -1)
    assert submit(hooks, script="#RAD " + "\x01" * 65_000)["rc"] == 0
    assert submit(hooks, comment="rad:memory=4G")["job"]["gres"] == "shard:4"


def test_a_killed_radd_comes_back_over_its_own_socket(radd: Radd, hooks: LuaProgram) -> None:
    radd.process.kill()
    radd.process.wait()
    assert radd.socket.exists()
    away = submit(hooks, comment="rad:memory=4G", environment={"SLURM_GPUS": "1"})
    assert (away["job"]["gres"], away["job"]["comment"]) == ("shard:39", "rad:memory=4G"), (
        "a GPU of its own, unsigned"
    )
    assert (
        away["job"]["environment"] == {"SLURM_GPUS": "", "RAD_TYPED_SLURM_GPUS": "1"}
        and "gets a whole GPU" in away["said"][0]
    )
    radd.start()
    assert submit(hooks, comment="rad:memory=4G")["job"]["gres"] == "shard:4"
    assert ping(str(radd.socket))[:2] == ("ok", 1), "the admin hears of the one that went on without it"
    assert parse_version(ping(str(radd.socket)).slurm) >= OLDEST


def test_a_radd_that_takes_a_request_has_left_its_fallback(radd: Radd) -> None:
    """A radd that dies just after its first answer must not leave the shim without an answer."""
    for _ in range(3):
        radd.stop()
        fallback = radd.folder / "radd" / "fallback.json"
        fallback.unlink()
        radd.spawn()
        wait_until(radd.connects)
        assert fallback.exists()


def test_a_second_radd_is_informed_of_the_first(radd: Radd) -> None:
    argv = [sys.executable, "-m", "slurm_plugin.radd", "--config", str(radd.folder / "rad.toml")]
    second = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert second.returncode == 1
    assert second.stderr.splitlines()[-1].startswith("radd: ") and "another radd" in second.stderr
    assert radd.answers()


def test_sighup_takes_a_good_file_and_keeps_the_old_one_from_a_bad_one(radd: Radd, hooks: LuaProgram) -> None:
    radd.configure("bserve")
    radd.signal(signal.SIGHUP)
    wait_until(lambda: "the old one stays in force" in radd.log())
    assert submit(hooks, comment="rad:memory=4G")["job"]["gres"] == "shard:4"
    radd.configure("observe")
    radd.signal(signal.SIGHUP)
    wait_until(lambda: "read again: mode observe" in radd.log())
    fallback = json.loads((radd.folder / "radd" / "fallback.json").read_text())
    assert fallback["partitions"] == {}, "without radd, observe changes nothing either"
    observed = submit(hooks, comment="rad:memory=4G")
    assert (observed["job"]["gres"], observed["job"]["comment"]) == ("gres:gpu:1", "rad:memory=4G")
    wait_until(lambda: "observe:-shared-shard:4" in radd.log())


def test_sigterm_ends_it_cleanly(radd: Radd) -> None:
    assert radd.stop() == 0
    assert not radd.socket.exists()
    assert "Traceback" not in radd.log()


HOSTILE_LOOP = """
import os, socket, sys
os.setuid(65534)
folder, refused = int(sys.argv[1]), 0
print("loops", flush=True)
while True:
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(0.5)
    try:
        s.connect(f"/proc/self/fd/{folder}/radd.sock")
        s.send(b"{")
        print("won", flush=True)
    except PermissionError:
        refused += 1
        if refused == 1:
            print("refused", flush=True)
"""


def test_other_users_cannot_connect_and_their_loop_starves_no_job(radd: Radd, hooks: LuaProgram) -> None:
    """A hostile loop against a real radd, over a path that is open to everybody."""
    if os.getuid() != 0:
        pytest.skip("becoming another user needs root")
    radd.folder.chmod(0o755)
    folder = os.open(radd.folder, os.O_PATH)  # the way to it is closed to others
    loops = [
        subprocess.Popen(
            [sys.executable, "-c", HOSTILE_LOOP, str(folder)],
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[folder],
        )
        for _ in range(3)
    ]
    try:
        for each in loops:
            assert each.stdout is not None
            assert [each.stdout.readline(), each.stdout.readline()] == ["loops\n", "refused\n"]
        for _ in range(50):
            assert submit(hooks, comment="rad:memory=4G")["job"]["gres"] == "shard:4"
    finally:
        for each in loops:
            each.kill()
            rest, _ = each.communicate()
            assert "won" not in rest
        os.close(folder)


@pytest.mark.usefixtures("radd")
def test_one_users_input_does_not_close_the_door_for_another(hooks: LuaProgram) -> None:
    """65,000 control bytes in a #RAD line, in the comment and in the request, and text that grows when escaped."""
    evil = "\x01" * 65_000
    for _ in range(5):
        for name in ("script", "comment", "gres", "partition"):
            job = {"user_id": 666, name: f"gpu #RAD rad:{evil}"}
            assert submit(hooks, **job)["rc"] == 0
        assert submit(hooks, user_id=666, script="#RAD " + '"' * 65_000)["rc"] == 0
        assert submit(hooks, user_id=666, comment='rad:memory=1G,model="' + "\\" * 900)["rc"] == 0
    assert submit(hooks, comment="rad:memory=4G")["job"]["gres"] == "shard:4"


def no_good_settings(folder: Path) -> None:
    """Leave a wrong rad.toml, and no copy of the one before."""
    (folder / "rad.toml").write_text("moed = 1")
    (folder / "rad.toml.good").unlink()


def test_radd_starts_with_the_last_good_rad_toml_where_the_present_one_is_broken(radd: Radd) -> None:
    radd.stop()
    (radd.folder / "rad.toml").write_text("moed = 1")
    radd.start()
    text = (
        f"{radd.folder / 'rad.toml'}:1: unknown key moed; did you mean mode?; the last good copy is in force"
    )
    assert text in radd.log()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (no_good_settings, "rad.toml:1: unknown key moed; did you mean mode?"),
        (lambda folder: (folder / "key").unlink(), "rad install --key"),
        (lambda folder: (folder / "key").chmod(0o644), "chmod 600"),
    ],
    ids=["wrong key in rad.toml", "no cluster key", "open cluster key"],
)
def test_what_stops_a_start_is_one_clear_line(
    radd: Radd, spoil: Callable[[Path], object], words: str
) -> None:
    radd.stop()
    spoil(radd.folder)
    argv = [sys.executable, "-m", "slurm_plugin.radd", "--config", str(radd.folder / "rad.toml")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 or "WARNING" in done.stderr
    assert words in done.stderr.splitlines()[-1]
