from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpumemnet.profile.record import ModelProfile
from slurm_plugin.core.comments import signed_comment
from slurm_plugin.core.config.load import Config, parse_config
from slurm_plugin.login.cli_filter import answer
from slurm_plugin.slurm.versions import OLDEST, Version
from tests.timing import within

EXAMPLES = Path(__file__).resolve().parents[4] / "examples" / "models"
SUMMARY = (EXAMPLES / "resnet18_torchinfo.txt").read_bytes()
SCRIPT = "#!/bin/bash\n#SBATCH --gpus=1\n#RAD model={model} batch_size=32\ntrue\n"


def config(mode: str = "enforce", **partition: Any) -> Config:
    settings = {"collocate": True, "gpu_memory_mib": 40000, **partition}
    tree = {"mode": mode, "default_partition": "gpu", "partition": {"gpu": settings, "plain": {}}}
    return parse_config(tree, origin="rad.toml")


def sbatch(folder: Path, model: str, *, config: Config = config(), **more: Any) -> dict[str, Any]:  # noqa: B008
    script = folder / "job.sh"
    script.write_text(SCRIPT.format(model=model))
    options = {"command": "sbatch", "script": str(script), **more}
    return answer(options, config, folder=folder, user_id=1000)


def srun(
    folder: Path,
    *,
    config: Config = config(),  # noqa: B008
    version: Version = OLDEST,
    **options: Any,
) -> dict[str, Any]:
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return answer({"command": "srun", **named}, config, folder=folder, user_id=1000, version=version)


def test_the_profile_goes_into_the_comment_after_the_users_words(tmp_path: Path) -> None:
    (tmp_path / "m.txt").write_bytes(SUMMARY)
    reply = sbatch(tmp_path, "m.txt", comment="my words")
    comment = reply["set"]["comment"]
    assert comment.startswith("my words rad.profile:")
    profile = ModelProfile.from_text(signed_comment.profile_in(comment) or "")
    assert (profile.batch_size, profile.family) == (32, "cnn")
    assert list(reply["set"]) == ["comment"]


@pytest.mark.parametrize("prefix", [b"", b"\xef\xbb\xbf"])
def test_windows_scripts_and_names_with_spaces_are_read(tmp_path: Path, prefix: bytes) -> None:
    name = 'my "best" mödel\'s.txt'
    (tmp_path / name).write_bytes(SUMMARY.replace(b"\n", b"\r\n"))
    script = tmp_path / "a job's script.sh"
    script.write_bytes(
        prefix + "#!/bin/sh\r\n#RAD model='my \"best\" mödel'\"'\"'s.txt' batch_size=2\r\n".encode()
    )
    reply = answer({"command": "sbatch", "script": str(script)}, config(), folder=tmp_path, user_id=1000)
    assert signed_comment.profile_in(reply["set"]["comment"]), reply


def test_a_relative_path_is_looked_for_here_and_next_to_the_script(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    script = tmp_path / "job.sh"
    script.write_text(SCRIPT.format(model="m.txt"))
    (tmp_path / "m.txt").write_bytes(SUMMARY)
    options = {"command": "sbatch", "script": str(script)}
    reply = answer(options, config(), folder=tmp_path / "elsewhere", user_id=1000)
    assert signed_comment.profile_in(reply["set"]["comment"])


def test_a_model_that_is_nowhere_is_reported_with_both_places(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    script = tmp_path / "job.sh"
    script.write_text(SCRIPT.format(model="m.txt"))
    options = {"command": "sbatch", "script": str(script)}
    reply = answer(options, config(), folder=tmp_path / "elsewhere", user_id=1000)
    assert reply["say"] == [f"RAD: m.txt: no such file in {tmp_path}/elsewhere or {tmp_path}; check the path"]
    (line,) = sbatch(tmp_path, "$MODELS/m.txt")["say"]
    assert line.endswith("check the path; variables are not expanded in #RAD lines")


def test_home_is_written_as_in_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "m.txt").write_bytes(SUMMARY)
    assert signed_comment.profile_in(sbatch(tmp_path, "~/m.txt")["set"]["comment"])
    assert sbatch(tmp_path, "~/n.txt")["say"] == [f"RAD: {tmp_path}/home/n.txt: no such file; check the path"]


def test_a_python_script_is_informed_how_it_becomes_a_summary(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    (line,) = sbatch(tmp_path, "train.py")["say"]
    assert line.endswith(
        "train.py: a script, not a summary; to make one, run: rad-estimate --save m.rad -- python train.py"
    )


@pytest.mark.parametrize("name", ["best.pt", "model.safetensors"])
def test_weights_are_read_from_a_summary(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(bytes(5000))
    (line,) = sbatch(tmp_path, name)["say"]
    assert line.endswith(
        f"{name}: weights, not a summary; to make one, run: rad-estimate --save m.rad -- python train.py"
    )


def test_a_model_of_hugging_face_is_read_before_the_job(tmp_path: Path) -> None:
    (line,) = sbatch(tmp_path, "hf:/data/llama")["say"]
    assert line == (
        "RAD: hf:/data/llama: read beforehand, not by a job: rad-estimate --save m.rad --module hf:/data/llama "
        "--batch-size N --seq-len N; then model=m.rad"
    )


def make(path: Path, kind: str) -> None:
    if kind == "empty":
        path.touch()
    elif kind == "binary":
        path.write_bytes(bytes(range(256)) * 10)
    elif kind == "truncated":
        path.write_bytes(SUMMARY[:200])
    elif kind == "100 MB":
        with path.open("wb") as file:
            file.truncate(100 << 20)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    "kind", ["missing", "empty", "binary", "truncated", "100 MB", "fifo", "folder", "loop", "device"]
)
def test_a_bad_summary_costs_one_line_that_names_it(tmp_path: Path, kind: str) -> None:
    make(tmp_path / "bad.txt", kind)
    reply = sbatch(tmp_path, "bad.txt")
    assert reply["set"] == {}
    assert len(reply["say"]) == 1
    line = reply["say"][0]
    assert "bad.txt" in line and "; " in line and "\n" not in line


def test_a_comment_without_space_is_reported(tmp_path: Path) -> None:
    (tmp_path / "m.txt").write_bytes(SUMMARY)
    reply = sbatch(tmp_path, "m.txt", comment="x" * 1000)
    assert reply["set"] == {} and "too long" in reply["say"][0]


def test_a_wrong_directive_is_left_to_job_submit(tmp_path: Path) -> None:
    assert sbatch(tmp_path, "m.txt batch_size=3") == {"set": {}, "say": []}


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({"gpus": "1"}, {"gpus": "", "gres": "gpu:0,shard:5"}),
        ({"gpus": "1", "ntasks": "2"}, {"gpus": "", "gres": "gpu:0,shard:10", "nodes": "1"}),
        ({"gres": "gpu:1"}, {"gres": "gpu:0,shard:5"}),
        ({"gpus_per_node": "1"}, {"gpus-per-node": "", "gres": "gpu:0,shard:5"}),
        ({"gpus_per_task": "1", "ntasks": "1"}, {"gpus-per-task": "", "gres": "gpu:0,shard:5"}),
        ({"gres": "gpu:1,nvme:3", "nodes": "1-1"}, {"gres": "gpu:0,nvme:3,shard:5"}),
        ({"gpus": "1", "cpus_per_gpu": "4"}, {}),
        ({"gpus": "1", "mem_per_gpu": "4G"}, {}),
        ({"gpus": "1", "nodes": "2"}, {}),
        ({"gpus": "1", "nodes": "1-2"}, {}),
        ({"gpus": "1", "constraint": "[a*1&b*1]"}, {}),
        ({"gpus": "a100:1"}, {}),
        ({"gpus": "4"}, {}),
        ({}, {}),
    ],
)
def test_srun_options_become_shards(tmp_path: Path, options: dict[str, str], changes: dict[str, str]) -> None:
    assert srun(tmp_path, comment="rad:memory=5G", **options)["set"] == changes


def test_srun_without_a_word_gets_the_partitions_default(tmp_path: Path) -> None:
    assert srun(tmp_path, gpus="1")["set"]["gres"] == "gpu:0,shard:39"
    assert srun(tmp_path, gpus="1", version=(24, 11, 5))["set"] == {}, "gpu:1 keeps shards away there"
    assert srun(tmp_path, gpus="1", config=config(default="leave"))["set"] == {}
    assert srun(tmp_path, gpus="1", partition="plain") == {}


def test_srun_is_refused_what_no_gpu_can_hold(tmp_path: Path) -> None:
    reply = srun(tmp_path, gpus="1", comment="rad:memory=300G")
    assert reply["set"] == {} and "300.0 GiB" in reply["refuse"]


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_observing_and_off_say_and_rewrite_nothing(tmp_path: Path, mode: str) -> None:
    reply = srun(tmp_path, gpus="1", comment="rad:memory=300G", config=config(mode))
    assert not reply.get("set") and not reply.get("say") and not reply.get("refuse")


def program(folder: Path, options: dict[str, Any] | str) -> subprocess.CompletedProcess[bytes]:
    (folder / "rad.toml").write_text(
        'default_partition = "gpu"\n[partition.gpu]\ncollocate = true\ngpu_memory_mib = 40000\n'
    )
    text = options if isinstance(options, str) else json.dumps(options, ensure_ascii=False)
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "slurm_plugin.login.cli_filter",
            str(folder / "rad.toml"),
            text.encode(errors="surrogateescape"),
        ],
        capture_output=True,
        cwd=folder,
        timeout=within(20),
        check=False,
    )


def test_the_program_prints_one_line_of_json_and_keeps_strange_bytes(tmp_path: Path) -> None:
    (tmp_path / "m.txt").write_bytes(SUMMARY)
    done = program(tmp_path, {"command": "sbatch", "comment": "caf\udce9 rad:model=m.txt,batch_size=2"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"\n") == 1
    comment = json.loads(done.stdout.decode(errors="surrogateescape"))["set"]["comment"]
    assert comment.startswith("caf\udce9 rad:model=m.txt,batch_size=2 rad.profile:")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"gpus":3}', '{"comment":"x","script":"/proc/self/mem"}'])
def test_the_program_never_shows_a_traceback(tmp_path: Path, text: str) -> None:
    done = program(tmp_path, text)
    assert b"Traceback" not in done.stderr
    assert done.stdout == b"" or json.loads(done.stdout) is not None


@pytest.mark.parametrize(
    ("slurm_conf", "reason"),
    [
        ("GresTypes=gpu,shard", ""),
        ("GresTypes=gpu", "GresTypes has no shard"),
        ("GresTypes=gpu,shard\nNodeName=n1 Gres=gpu:4", "no NodeName line has shards"),
    ],
)
def test_where_slurm_has_no_shards_an_srun_is_left_as_it_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slurm_conf: str, reason: str
) -> None:
    (tmp_path / "slurm.conf").write_text(f"{slurm_conf}\n")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    done = program(tmp_path, {"command": "srun", "gpus": "1", "comment": "rad:memory=4G"})
    assert (b"shard" in done.stdout) == (not reason)
    assert reason.encode() in done.stderr
