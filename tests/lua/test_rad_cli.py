from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lua.lua_programs import VERSIONS, LuaProgram

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "models"
RECORDER = """#!/bin/sh
# Stands in for Python: notes that it was started, and prints what a test wants said.
for last; do :; done
printf %s "$last" > '{folder}/asked'
cat '{folder}/reply'
"""


class CliFilter:
    """The hook, with a program in Python's place."""

    def __init__(self, lua: str, folder: Path, env: dict[str, str] | None = None) -> None:
        self.folder = folder
        python = folder / "py thon's"
        python.write_text(RECORDER.format(folder=folder))
        python.chmod(0o755)
        settings = {"python": str(python), "config": "/etc/rad/rad.toml", "time_limit_s": 2}
        self.program = LuaProgram(lua, "cli.lua", json.dumps(settings), env=env)
        self.reply({"set": {}, "say": []})

    def reply(self, reply: dict[str, Any] | bytes) -> None:
        text = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        (self.folder / "reply").write_bytes(text)

    def submit(self, options: dict[str, Any], *argv: str, offset: int = 0) -> dict[str, Any]:
        (self.folder / "asked").unlink(missing_ok=True)
        answer = self.program.call({"options": options, "argv": list(argv), "offset": offset})
        assert answer["ok"] is True
        return answer

    def sent(self) -> dict[str, Any] | None:
        path = self.folder / "asked"
        if not path.exists():
            return None
        sent: dict[str, Any] = json.loads(path.read_text())
        return sent


@pytest.fixture(params=VERSIONS)
def lua(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def cli(lua: str, tmp_path: Path) -> Iterator[CliFilter]:
    made = CliFilter(lua, tmp_path)
    yield made
    made.program.close()


def script(folder: Path, text: str, name: str = "job.sh") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_a_job_that_names_no_model_starts_nothing(cli: CliFilter) -> None:
    path = script(cli.folder, "#!/bin/sh\n#RAD memory=4G\necho '#RAD model=m'\n")
    cli.submit({"type": "sbatch", "gpus": "1"}, path)
    cli.submit({"type": "sbatch", "gpus": "1", "comment": "rad:memory=4G"})
    cli.submit({"type": "sbatch", "gpus": "1", "comment": "mine"})
    cli.submit({"type": "sbatch", "gpus": "1"}, str(cli.folder / "missing"))
    cli.submit({"type": "srun"}, "hostname")
    cli.submit({"type": "salloc", "gres": "nvme:3", "ntasks-per-gpu": "-2"})
    assert cli.sent() is None


@pytest.mark.parametrize("name", ["job.sh", 'a job\'s "script" $(touch x) `touch y`; é.sh', "-n"])
def test_a_script_with_rad_lines_is_handed_over(cli: CliFilter, name: str) -> None:
    path = script(cli.folder, "#!/bin/sh\n#RAD model=m.txt\n", name)
    cli.reply({"set": {"comment": "rad.profile:p1"}, "say": ["100% sure\nof it"]})
    answer = cli.submit({"type": "sbatch", "partition": "gpu"}, path)
    assert cli.sent() == {"command": "sbatch", "script": path, "partition": "gpu"}
    assert answer["options"]["comment"] == "rad.profile:p1"
    assert answer["said"] == ["sbatch: 100% sure of it"]
    assert not list(cli.folder.glob("[xy]"))
    assert not cli.submit({"type": "sbatch", "partition": "gpu", "quiet": "1"}, path)["said"]


def test_a_comment_is_enough(cli: CliFilter) -> None:
    cli.submit({"type": "sbatch", "comment": "it's rad:model=m.txt"})
    assert cli.sent() == {"command": "sbatch", "comment": "it's rad:model=m.txt"}


@pytest.mark.parametrize("kind", ["srun", "salloc"])
def test_interactive_gpu_jobs_are_decided_here(cli: CliFilter, kind: str) -> None:
    cli.reply({"set": {"gpus": "", "gres": "shard:3", "nodes": "1"}})
    options = {"type": kind, "gpus": "1", "cpus-per-gpu": "0", "ntasks-per-gpu": "-2", "mem-per-gpu": "unset"}
    answer = cli.submit(options, "hostname")
    assert cli.sent() == {"command": kind, "gpus": "1"}
    assert (answer["options"]["gpus"], answer["options"]["gres"]) == ("", "shard:3")


def test_steps_of_a_job_and_components_are_left_alone(lua: str, tmp_path: Path) -> None:
    inside = CliFilter(lua, tmp_path, env={"SLURM_JOB_ID": "7"})
    inside.submit({"type": "srun", "gpus": "1"})
    assert inside.sent() is None
    inside.submit({"type": "sbatch", "comment": "rad:model=m.txt"})
    assert inside.sent() is not None, "a job that a job submits is a job like any other"
    inside.program.close()


@pytest.mark.parametrize("kind", ["scrontab", ""])
def test_what_is_no_submission_of_now_is_left_to_job_submit(cli: CliFilter, kind: str) -> None:
    cli.submit({"type": kind, "gpus": "1", "comment": "rad:memory=4G"})
    assert cli.sent() is None


def test_a_heterogeneous_job_is_left_alone(cli: CliFilter) -> None:
    cli.submit({"type": "srun", "gpus": "1"}, offset=1)
    cli.submit({"type": "srun", "gpus": "1", "jobid": "9"})
    assert cli.sent() is None


def test_a_refusal_ends_the_command(cli: CliFilter) -> None:
    cli.reply({"refuse": "too large: 100%", "set": {"gres": "shard:1"}})
    answer = cli.submit({"type": "srun", "gpus": "1"})
    assert (answer["rc"], answer["said"]) == (-1, ["srun: error: too large: 100%"])
    assert "gres" not in answer["options"]


@pytest.mark.parametrize(
    "reply",
    [b"", b"{", b"garbage %s", b"[1]", b'{"set":{"gres":3}}', b'{"set":{"uid":"0"}}', b"x" * 200_000],
    ids=range(7),
)
def test_a_mad_program_changes_nothing(cli: CliFilter, reply: bytes) -> None:
    cli.reply(reply)
    answer = cli.submit({"type": "srun", "gpus": "1"})
    assert (answer["rc"], answer["options"]) == (0, {"type": "srun", "gpus": "1"})


def test_a_missing_program_changes_nothing(lua: str, tmp_path: Path) -> None:
    program = LuaProgram(lua, "cli.lua", json.dumps({"python": str(tmp_path / "none"), "config": "x"}))
    answer = program.call({"options": {"type": "srun", "gpus": "1"}})
    program.close()
    assert (answer["ok"], answer["rc"], answer["options"]["gpus"]) == (True, 0, "1")


def test_a_fifo_is_not_opened_again(cli: CliFilter) -> None:
    os.mkfifo(cli.folder / "fifo")
    cli.submit({"type": "sbatch"}, str(cli.folder / "fifo"))
    assert cli.sent() is None


@pytest.fixture
def real(lua: str, tmp_path: Path) -> Iterator[LuaProgram]:
    """The hook with its own program, and a rad.toml."""
    (tmp_path / "rad.toml").write_text(
        'default_partition = "gpu"\n[partition.gpu]\ncollocate = true\n'
        "gpu_memory_mib = 40000\ncompute_overcommit = 0.0\n"
    )
    settings = {"python": sys.executable, "config": str(tmp_path / "rad.toml")}
    program = LuaProgram(lua, "cli.lua", json.dumps(settings))
    yield program
    program.close()


def test_a_limit_of_0_on_files_changes_nothing(real: LuaProgram) -> None:
    resource.prlimit(real.pid, resource.RLIMIT_FSIZE, (0, 0))
    direct = real.call({"options": {"type": "srun", "gpus": "1", "comment": "rad:memory=3G"}})
    assert direct["options"]["gres"] == "gpu:0,shard:3"


def test_with_the_real_program(real: LuaProgram, tmp_path: Path) -> None:
    path = script(tmp_path, f"#!/bin/sh\n#RAD model={EXAMPLES}/resnet18_torchinfo.txt batch_size=32\n")
    batch = real.call({"options": {"type": "sbatch", "comment": "caf\udce9"}, "argv": [path]})
    direct = real.call({"options": {"type": "srun", "gpus": "1", "comment": "rad:memory=3G"}})
    assert batch["options"]["comment"].startswith("caf\udce9 rad.profile:p")
    assert direct["options"]["gres"] == "gpu:0,shard:3"
