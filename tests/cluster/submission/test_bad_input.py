"""Bad input costs its owner one clear line and nothing else: the submission always goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.jobs import Jobs
from tests.cluster.submission.test_dry_run import dry_run

pytestmark = pytest.mark.cluster

SCRIPT = "#!/bin/bash\n#SBATCH --gpus=1 --hold\n"


def script(jobs: Jobs, text: str | bytes, name: str = "job.sh") -> Path:
    path = jobs.folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def submit(jobs: Jobs, path: Path) -> tuple[dict[str, str], str]:
    job = jobs.submit(path.name)
    assert job.job_id is not None, job.messages
    return jobs.fields(job.job_id), job.messages


def make(folder: Path, kind: str) -> None:
    path = folder / "bad.txt"
    good = folder / "models" / "resnet18_torchinfo.txt"
    if kind == "empty":
        path.touch()
    elif kind == "binary":
        path.write_bytes(os.urandom(5000))
    elif kind == "truncated":
        path.write_bytes(good.read_bytes()[:300])
    elif kind == "100 MB":
        with path.open("wb") as file:
            file.truncate(100 << 20)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "symlink to a secret":
        path.symlink_to("/etc/shadow")
    elif kind == "folder":
        path.mkdir()
    elif kind == "unreadable":
        path.write_text(good.read_text())
        path.chmod(0)


KINDS = [
    "missing",
    "empty",
    "binary",
    "truncated",
    "100 MB",
    "fifo",
    "symlink to a secret",
    "folder",
    "unreadable",
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_summary_that_cannot_be_read_is_named(jobs: Jobs, kind: str) -> None:
    make(jobs.folder, kind)
    path = script(jobs, f"{SCRIPT}#RAD model=bad.txt batch_size=32\ntrue\n")
    _, messages = submit(jobs, path)
    lines = [line for line in messages.splitlines() if "bad.txt" in line]
    assert len(lines) == 1, messages


@pytest.mark.parametrize(
    ("directive", "word"),
    [
        ("batch_size=0", "batch_size"),
        ("batch_size=-1", "batch_size"),
        ("batch_size=1e99", "batch_size"),
        ("batch_size=abc", "batch_size"),
        ("batch_size=32 model=models/mlp_torchinfo.txt", "model"),
        ("batch_size=32 optimizer=adamant", "adam"),
        ("bach_size=32", "batch_size"),
    ],
)
def test_a_wrong_directive_is_named_with_file_line_and_fix(jobs: Jobs, directive: str, word: str) -> None:
    path = script(jobs, f"{SCRIPT}#RAD model=models/resnet18_torchinfo.txt {directive}\ntrue\n")
    _, messages = submit(jobs, path)
    lines = [line for line in messages.splitlines() if "job.sh:3" in line]
    assert len(lines) == 1 and word in lines[0], messages


def test_a_directive_after_the_first_command_is_reported(jobs: Jobs) -> None:
    path = script(jobs, f"{SCRIPT}true\n#RAD memory=4G\n")
    _, messages = submit(jobs, path)
    assert "job.sh:4" in messages, messages


HEAD = "#!/bin/bash -l\n#SBATCH --gpus=1 --hold\n"
GOOD = "#RAD model=resnet18.txt batch_size=32\n"
NOT_READ = "job.sh:{}: #RAD below the first command is not read; move it above line {}"
ONE_WORD = "job.sh:3: each key and its value are one word; write #RAD model=resnet18.txt batch_size=32"

TYPED: dict[str, tuple[str, str]] = {
    "conda activate above": (f"{HEAD}conda activate torch\n{GOOD}", NOT_READ.format(4, 3)),
    "module load below": (f"{HEAD}{GOOD}module load cuda/12.4\npython train.py\n", "RAD: estimated"),
    "srun inside": (f"{HEAD}{GOOD}srun --gpus=1 python train.py\n", "RAD: estimated"),
    "an array": (f"{HEAD}#SBATCH --array=0-3\n{GOOD}python train.py\n", "RAD: estimated"),
    "a heredoc": (f"{HEAD}{GOOD}cat >a.sh <<EOF\n#RAD batch_size=8\nEOF\n", "RAD: estimated"),
    "a variable": (f"{HEAD}{GOOD.replace('32', '$BATCH')}", "variables are not expanded"),
    "a path with spaces": (
        f"{HEAD}#RAD model=my nets/resnet 18.txt batch_size=32\n",
        'job.sh:3: a name with spaces is quoted; write #RAD model="my nets/resnet 18.txt" batch_size=32',
    ),
    "the same, quoted": (
        f'{HEAD}#RAD model="my nets/resnet 18.txt" batch_size=32\npython train.py\n',
        "RAD: estimated",
    ),
    "as options": (f"{HEAD}#RAD --model resnet18.txt --batch-size 32\n", ONE_WORD),
    "as YAML": (f"{HEAD}#RAD model: resnet18.txt batch_size: 32\n", ONE_WORD),
    "two lines": (
        f"{HEAD}#RAD model=resnet18.txt \\\n#RAD batch_size=32\n",
        "does not continue on the next line",
    ),
    "weights": (
        f"{HEAD}#RAD model=best.pt batch_size=32\n",
        "best.pt: weights, not a summary; to make one, run:",
    ),
    "Hugging Face": (
        f"{HEAD}#RAD model=hf:/data/llama batch_size=4\n",
        "rad-estimate --save m.rad --module hf:/data/llama",
    ),
    "torchrun": (
        f"{HEAD}#SBATCH --gpus=2\n{GOOD}torchrun --nproc-per-node=2 train.py\n",
        "; the job gets whole GPUs",
    ),
    "gpus-per-task": (
        f"{HEAD.replace('--gpus=1', '-n2 --gpus-per-task=1')}{GOOD}srun python train.py\n",
        "; the job gets whole GPUs",
    ),
    "Python": (f"#!/usr/bin/env python3\n#SBATCH --gpus=1 --hold\n{GOOD}import torch\n", "RAD: estimated"),
}


@pytest.mark.parametrize("kind", TYPED)
def test_what_researchers_write_is_taken_and_answered(jobs: Jobs, kind: str) -> None:
    text, reported = TYPED[kind]
    summary = (jobs.folder / "models" / "resnet18_torchinfo.txt").read_bytes()
    (jobs.folder / "my nets").mkdir(exist_ok=True)
    for name in ("resnet18.txt", "my nets/resnet 18.txt"):
        (jobs.folder / name).write_bytes(summary)
    (jobs.folder / "best.pt").write_bytes(bytes(5000))
    _, messages = submit(jobs, script(jobs, text))
    assert reported in messages
    assert len([line for line in messages.splitlines() if "RAD" in line]) <= 3, "no more than can be read"
    _, said = dry_run(jobs, "job.sh")
    assert reported in "\n".join(said["sbatch"]["says"])


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (b"#!/bin/bash\r\n#RAD memory=4G\r\ntrue\r\n", "DOS line breaks"),
        (b"\xef\xbb\xbf#!/bin/bash\ntrue\n", "#!"),
        (b"#!/bin/bash\ntrue\n\0\n", "NULL character"),
    ],
    ids=["CRLF", "byte order mark", "NUL"],
)
def test_scripts_that_slurm_itself_refuses_get_slurms_own_line(jobs: Jobs, text: bytes, word: str) -> None:
    answer = jobs.submit("--gpus=1", "--hold", script(jobs, text).name)
    assert answer.job_id is None
    assert word in answer.messages and "RAD" not in answer.messages


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
def test_summaries_with_windows_line_ends_are_read(jobs: Jobs, mark: bytes) -> None:
    good = (jobs.folder / "models" / "resnet18_torchinfo.txt").read_bytes()
    (jobs.folder / "windows.txt").write_bytes(mark + good.replace(b"\n", b"\r\n"))
    fields, messages = submit(jobs, script(jobs, f"{SCRIPT}#RAD model=windows.txt batch_size=32\ntrue\n"))
    assert "shard:" in fields["TresPerNode"], messages


def test_names_with_spaces_and_quotes_work(jobs: Jobs) -> None:
    name = 'my model\'s "best" ünï.txt'
    (jobs.folder / name).write_bytes((jobs.folder / "models" / "resnet18_torchinfo.txt").read_bytes())
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    path = script(jobs, f'{SCRIPT}#RAD model="{quoted}" batch_size=32\ntrue\n', name="a job's script.sh")
    fields, messages = submit(jobs, path)
    assert "rad2:shared:" in fields["Comment"], messages


def test_percent_signs_and_newlines_in_what_the_user_writes_do_no_harm(jobs: Jobs) -> None:
    jobs.accepted(
        "--hold", "--gpus=1", "--comment=100% mine %s %d\nrad:memory=4G", "--job-name=%n", "--wrap", "true"
    )
