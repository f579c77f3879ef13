from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeClock, FakeSlurm, no_boosts, signed
from paths import CHECKOUT

from gpumemnet.profile.build import profile_summary
from gpumemnet.training import TrainingSetup
from slurm_plugin.core.clock import Clock, SystemClock
from slurm_plugin.core.comments import signed_comment
from slurm_plugin.core.comments.admin_comment import Note
from slurm_plugin.core.errors import ConfigError, SlurmError, WireError
from slurm_plugin.core.history.models import models_path
from slurm_plugin.core.history.runs import Run, from_line, peaks_path, record
from slurm_plugin.core.process.background import in_background
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.core.units import GIB
from slurm_plugin.radd import inbox, notes
from slurm_plugin.radd.requeued.release import Releaser
from slurm_plugin.radd.service import Service
from slurm_plugin.radd.submission import reload
from slurm_plugin.radd.submission.reload import Reloader
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.control import NodeView, SlurmControl

KEY = bytes(32)
MODELS = CHECKOUT / "examples" / "models"
TOML = """
default_partition = "gpu"
[paths]
key = "{folder}/key"
state = "{folder}/state"
slurm_conf = "{folder}/slurm.conf"
[partition.gpu]
collocate = true
gpu_memory_mib = 40000
compute_overcommit = 0.0
"""


class FixedVersion(SlurmCommands):
    """Slurm's commands where no Slurm is: only the version is queried."""

    def __init__(self, version: tuple[int, int, int] | None) -> None:
        super().__init__()
        self._fixed = version

    def version(self) -> tuple[int, int, int]:
        if self._fixed is None:
            raise SlurmError("no scontrol")
        return self._fixed


class Heard(Releaser):
    """Only remembers what it hears."""

    def __init__(self) -> None:
        slurm, clock = FixedVersion(None), FakeClock()
        super().__init__(slurm, clock, *no_boosts(slurm, clock), key=lambda: KEY)
        self.notes: list[tuple[int, Note]] = []

    def hear(self, job_id: int, note: Note, *, profile_key: str | None = None) -> None:
        self.notes.append((job_id, note))


class Shardless(FakeSlurm):
    """Slurm with one node, whose Gres changes."""

    gres = "gpu:4,shard:156"

    def nodes(self) -> tuple[NodeView, ...]:
        return (NodeView(name="n0", gres=self.gres),)


SLURM_CONF = "GresTypes=gpu,shard\nJobSubmitPlugins=lua\n"


def write(folder: Path, text: str = TOML) -> Path:
    if not (folder / "slurm.conf").exists():
        (folder / "slurm.conf").write_text(SLURM_CONF)
    (folder / "rad.toml").write_text(text.format(folder=folder))
    (folder / "key").write_bytes(KEY)
    (folder / "key").chmod(0o600)
    return folder / "rad.toml"


class Radd(Service):
    """A service with the parts that radd's main program makes."""

    def __init__(
        self, config_path: Path, slurm: SlurmControl, heard: Heard, clock: Clock | None = None
    ) -> None:
        clock = clock or SystemClock()
        self.in_force = Reloader(config_path, slurm, clock)
        super().__init__(self.in_force, heard, clock)


def service(folder: Path, version: tuple[int, int, int] | None = (22, 5, 8)) -> tuple[Radd, Heard]:
    heard = Heard()
    return Radd(write(folder), FixedVersion(version), heard), heard


SUBMIT: dict[str, Any] = {"v": 1, "op": "submit", "user_id": 1000, "gres": "gres:gpu:1"}


@pytest.mark.parametrize(
    ("version", "gres"), [((22, 5, 8), "shard:39"), ((24, 11, 5), None), (None, "shard:39")]
)
def test_the_form_of_a_whole_gpu_follows_the_version(
    tmp_path: Path, version: tuple[int, int, int] | None, gres: str | None
) -> None:
    made, _ = service(tmp_path, version)
    assert made.handle(SUBMIT)["set"].get("gres") == gres
    made.stop()


@pytest.mark.parametrize(
    ("version", "slurm_conf", "words"),
    [
        ((21, 8, 8), SLURM_CONF, "older than 22.05"),
        ((24, 11, 5), SLURM_CONF.replace(",shard", ""), "GresTypes has no shard"),
    ],
)
def test_where_slurm_has_no_shards_every_job_is_left_as_it_is_and_the_log_says_why(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    version: tuple[int, int, int],
    slurm_conf: str,
    words: str,
) -> None:
    (tmp_path / "slurm.conf").write_text(slurm_conf)
    made, _ = service(tmp_path, version)
    reply = made.handle({**SUBMIT, "comment": "rad:memory=4G"})
    made.stop()
    assert (reply["set"], reply["env"], reply["say"], reply["refuse"]) == ({}, {}, [], None)
    assert [words in record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        True
    ]


def test_what_is_in_the_way_is_reported_once_and_again_where_rad_toml_is_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    without = SLURM_CONF.replace(",shard", "")
    (tmp_path / "slurm.conf").write_text(without)
    made, _ = service(tmp_path, (24, 11, 5))

    def reported() -> int:
        return sum("GresTypes has no shard" in record.getMessage() for record in caplog.records)

    assert reported() == 1
    (tmp_path / "slurm.conf").write_text(without + "# a comment\n")
    os.utime(tmp_path / "slurm.conf", (1, 1))
    made._refresh()
    assert "slurm.conf read again" in caplog.text
    assert reported() == 1
    made.in_force.reload()
    assert reported() == 2
    made.stop()


def test_a_slurm_newer_than_the_table_is_reported_and_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made, _ = service(tmp_path, (27, 5, 1))
    reply = made.handle({**SUBMIT, "comment": "rad:memory=4G"})
    made.stop()
    assert reply["set"]["gres"] == "shard:4"
    assert [r.getMessage() for r in caplog.records if r.levelname == "ERROR"] == [
        "Slurm 27.05 is newer than 26.05, the newest that was tried, and is treated as that"
    ]


def test_it_says_how_it_is(tmp_path: Path) -> None:
    made, _ = service(tmp_path)
    answer = made.handle({"op": "ping"})
    assert (answer["pong"], answer["slurm"]) == (True, "22.05.8")
    made.stop()


def test_it_says_how_many_submissions_it_missed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made, _ = service(tmp_path)
    assert made.handle({"op": "ping"})["undecided"] is None, "no shim has reported yet"
    for total in (0, 2, 2, None, "many", -1, True):
        made.handle({**SUBMIT, "undecided": total})
    answer = made.handle({"op": "ping"})
    made.stop()
    assert (answer["undecided"], answer["undecided_age_s"]) == (2, 0)
    assert [line.startswith("2 submissions") for line in map(str, caplog.messages) if "without" in line] == [
        True
    ]


@pytest.mark.parametrize("message", [{**SUBMIT, "v": 2}, {"v": 1, "op": "dance"}, {"v": 1}])
def test_other_versions_and_operations_are_refused(tmp_path: Path, message: dict[str, Any]) -> None:
    made, _ = service(tmp_path)
    with pytest.raises(WireError):
        made.handle(message)
    made.stop()


def test_a_job_that_a_standby_may_refuse_keeps_its_gpu_and_the_shim_hears_of_it(tmp_path: Path) -> None:
    """Slurm 22.05's standby takes over and knows of no shards; what radd hears first may come from one."""
    (tmp_path / "slurm.conf").write_text(f"{SLURM_CONF}SlurmctldHost=a\nSlurmctldHost=b\n")
    slurm, clock = Shardless(), FakeClock()
    text = TOML.replace("[paths]", f'[paths]\nsocket = "{tmp_path}/radd.sock"')
    made = Radd(write(tmp_path, text), slurm, Heard(), clock)
    try:
        assert "gres" not in made.handle(SUBMIT)["set"], "the first"
        clock.sleep(60)
        assert made.handle(SUBMIT)["set"]["gres"] == "shard:39"
        slurm.gres = "gpu:4,shard:0"
        made._refresh()
        assert "gres" not in made.handle(SUBMIT)["set"]
        assert json.loads((tmp_path / "radd" / "fallback.json").read_text())["partitions"] == {}
        slurm.gres = "gpu:4,shard:156"
        made._refresh()
        assert made.handle(SUBMIT)["set"]["gres"] == "shard:39"
        assert json.loads((tmp_path / "radd" / "fallback.json").read_text())["partitions"] != {}
    finally:
        made.stop()


def test_a_broken_file_keeps_the_old_one_in_force(tmp_path: Path) -> None:
    made, _ = service(tmp_path)
    write(tmp_path, 'mode = "observed"')
    with pytest.raises(ConfigError, match="enforce, observe, off"):
        made.in_force.reload()
    assert made.in_force.config.mode == "enforce"
    write(tmp_path, 'mode = "observe"\n' + TOML)
    made.in_force.reload()
    assert made.handle(SUBMIT)["set"] == {}
    made.stop()


@pytest.mark.parametrize("estimator", ["rad", "boosted", "horus"])
def test_the_first_submission_waits_for_no_code_and_no_weights(tmp_path: Path, estimator: str) -> None:
    """From a cold disk they take longer than job_submit.lua waits, and the job got a GPU of its own."""
    profile = profile_summary(str(MODELS / "resnet50_torchinfo.txt"), TrainingSetup(batch_size=8)).to_text()
    toml = write(tmp_path, f'estimator = "{estimator}"\n' + TOML)
    program = f"""
import sys
from pathlib import Path
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.radd.requeued.position_keeper import PositionKeeper
from slurm_plugin.radd.requeued.priority_boosts import PriorityBooster
from slurm_plugin.radd.requeued.release import Releaser
from slurm_plugin.radd.submission.reload import Reloader
from slurm_plugin.radd.protocol.reply_log import log_reply
from slurm_plugin.radd.service import Service
from slurm_plugin.slurm.commands import SlurmCommands
SlurmCommands.version = lambda self: (22, 5, 8)
slurm, clock = SlurmCommands(), SystemClock()
in_force = Reloader(Path({str(toml)!r}), slurm, clock)
booster = PriorityBooster(Path({str(tmp_path / "boosts.json")!r}), slurm, clock, lambda: in_force.config)
keeper = PositionKeeper(slurm, clock, booster, lambda: in_force.config)
service = Service(in_force, Releaser(slurm, clock, booster, keeper, key=lambda: b""), clock)
loaded, opened = set(sys.modules), []
sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" else None)
comment = {signed_comment.with_profile("", profile)!r}
reply = service.handle({{**{SUBMIT!r}, "script": "#RAD model=a", "comment": comment}})
print(sorted(set(sys.modules) - loaded), [str(name) for name in opened if "models.jsonl" not in str(name)])
print("profile=" in reply["log"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["[] []", "True"], done.stdout + done.stderr


def test_a_reload_while_slurm_conf_is_taken_over_is_not_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An admin changes both files; one thread reads slurm.conf and the other hears of the reload."""
    begun, goes_on, prepares = threading.Event(), threading.Event(), reload.prepared

    def slow(*args: Any, **more: Any) -> Any:
        if threading.current_thread().name == "radd-inbox":
            begun.set()
            goes_on.wait(30)
        return prepares(*args, **more)

    monkeypatch.setattr(inbox, "REFRESH_S", 0.01)
    monkeypatch.setattr(reload, "prepared", slow)
    made, _ = service(tmp_path)
    (tmp_path / "slurm.conf").write_text(SLURM_CONF + "# changed\n")
    assert begun.wait(30)
    write(tmp_path, 'mode = "observe"\n' + TOML)
    reloads = threading.Thread(target=made.in_force.reload)
    reloads.start()
    reloads.join(0.3)  # it waits, or is done too early
    goes_on.set()
    reloads.join(30)
    made.stop()
    assert made.in_force.config.mode == "observe"


@pytest.mark.parametrize(
    ("text", "words"),
    [('estimator = "unknown"\n' + TOML, "estimator"), ('gpu = "abacus"\n' + TOML, "abacus")],
)
def test_names_that_gpumemnet_lacks_are_reported_at_start(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Radd(write(tmp_path, text), FixedVersion(None), Heard())


def modified(note: Note, comment: str = "", **more: Any) -> dict[str, Any]:
    return {
        "v": 1,
        "op": "modify",
        "job_id": 7,
        "user_id": 1000,
        "admin_comment": signed(note, user_id=int(more.get("user_id", 1000))),
        "comment": comment,
        **more,
    }


def test_notes_reach_the_recoverer_and_peaks_the_history(tmp_path: Path) -> None:
    made, heard = service(tmp_path)
    booking = Booking(kind="shared", memory_bytes=GIB, profile_key="ab12")
    comment = signed_comment.with_signed_booking(
        "mine", signed_comment.signed_booking(booking, user_id=1000, key=KEY)
    )
    recovered = Note(event="recovered", start_in_s=0, restart=1, peak_bytes=30 * GIB)
    ended = Note(event="ended", restart=1, peak_bytes=10 * GIB)
    made.handle(modified(recovered, comment))
    made.handle(modified(ended, comment))
    made.handle(modified(ended, comment, user_id=1001))  # a booking of another owner is none
    made.handle(modified(ended, "no booking"))
    for malformed in (
        {"job_id": None, "user_id": 3, "admin_comment": "rad: ended"},
        {"admin_comment": "mine"},
    ):
        with pytest.raises(WireError, match="a change without job_id"):
            made.handle({"v": 1, "op": "modify", **malformed})
    made.stop()
    assert heard.notes == [(7, recovered), (7, ended), (7, ended), (7, ended)]
    lines = (tmp_path / "state" / "peaks.jsonl").read_text().splitlines()
    (run,) = map(from_line, map(str.encode, lines))
    assert run is not None and run.time_s is not None
    assert (run.user_id, run.peak_bytes, run.profile_key, run.job_id) == (1000, 10 * GIB, "ab12", 7)


def test_what_epilogs_wrote_is_taken_in_also_where_messages_never_cease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "REFRESH_S", 3600.0)
    clock = FakeClock()
    made = Radd(write(tmp_path), FixedVersion((22, 5, 8)), Heard(), clock)
    record(peaks_path(tmp_path / "state"), Run(user_id=1, profile_key="ab12", peak_bytes=GIB, job_id=5))
    clock.sleep(4000)
    made.handle(modified(Note(event="ended"), ""))
    made.stop()  # it ends once everything was taken in
    assert made.in_force.peaks.knows(5)


def has_lines(path: Path) -> bool:
    return path.exists() and bool(path.read_text())


SWITCHES = ("recovery", "history", "accounting")


@pytest.mark.parametrize("off", [None, *SWITCHES])
def test_a_switch_turns_off_its_own_part_and_no_other(tmp_path: Path, off: str | None) -> None:
    text = TOML if off is None else f"{TOML}[features]\n{off} = false\n"
    heard = Heard()
    made = Radd(write(tmp_path, text), FixedVersion((24, 11, 5)), heard)
    setup = TrainingSetup(batch_size=8)
    profile = profile_summary((MODELS / "resnet18_torchinfo.txt").read_text(), setup).to_text()
    script = "#!/bin/sh\n#RAD model=resnet18_torchinfo.txt batch_size=8\n"
    reply = made.handle({**SUBMIT, "script": script, "comment": f"rad.profile:{profile}"})
    booking = Booking(kind="shared", memory_bytes=GIB, profile_key="ab12")
    comment = signed_comment.with_signed_booking(
        "", signed_comment.signed_booking(booking, user_id=1000, key=KEY)
    )
    made.handle(modified(Note(event="ended", peak_bytes=10 * GIB), comment))
    made.stop()
    done = {
        "recovery": [bool(heard.notes)],
        "history": [has_lines(peaks_path(tmp_path / "state")), has_lines(models_path(tmp_path / "state"))],
        "accounting": ["admin_comment" in reply["set"]],
    }
    assert done == {name: [name != off] * len(seen) for name, seen in done.items()}
    assert reply["set"]["gres"].startswith("shard:")


def test_a_bug_over_one_change_does_not_keep_the_next_from_being_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(inbox, "in_background", partial(in_background, pause_s=0.0))
    made, heard = service(tmp_path)
    read = notes.read_signed

    def trips_over_the_first(text: str, **whose: Any) -> Note | None:
        if "requeued" in text:
            raise ZeroDivisionError("a bug")
        return read(text, **whose)

    monkeypatch.setattr(notes, "read_signed", trips_over_the_first)
    change = {"v": 1, "op": "modify", "user_id": 1000}
    for job_id, event in ((7, "requeued"), (8, "recovered")):
        note = signed(Note(event=event, start_in_s=9), job_id=job_id)  # type: ignore[arg-type]
        made.handle({**change, "job_id": job_id, "admin_comment": note})
    made.stop()
    assert [job_id for job_id, _ in heard.notes] == [8]
    assert "internal error in radd-inbox, which continues" in caplog.text


def test_it_says_which_key_and_settings_it_uses(tmp_path: Path) -> None:
    made, _ = service(tmp_path)
    answer = made.handle({"op": "ping"})
    made.stop()
    assert re.fullmatch("[0-9a-f]{8}", answer["key"]) and re.fullmatch(
        "[0-9a-f]{8} .*/rad.toml", answer["settings"]
    )
