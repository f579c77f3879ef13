from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from golden_texts import Golden
from installed import TEXT_ESTIMATORS
from paths import CHECKOUT, SUMMARIES

from gpumemnet.errors import ModelFileError
from gpumemnet.estimators import tree_model
from gpumemnet.estimators.tree_model import WEIGHTS
from gpumemnet.units import MIB, human
from tests.timing import within

pytestmark = pytest.mark.slow

EXAMPLES = CHECKOUT / "examples"
RESIDUAL = str(SUMMARIES / "residual.torchsummary.txt")


def python(code: str, *args: str, cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """Run code with the package that this process imported, installed or a checkout."""
    env = {**os.environ, "PYTHONPATH": str(WEIGHTS.parents[1]), "PYTHONSAFEPATH": "1", **more}
    argv = [sys.executable, "-c", code, *args]
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=within(60), cwd=cwd, env=env, check=False
    )


def run(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return python("from gpumemnet.cli import main; main()", *args, cwd=cwd)


def test_a_job_script_in_python_is_one(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        f"#!/usr/bin/env python3\n#RAD model={RESIDUAL} batch_size=8\nimport torch\n"
    )
    assert run("job.py", cwd=tmp_path).returncode == 0
    (tmp_path / "train.py").write_text("import torch\n")
    done = run("train.py", cwd=tmp_path)
    assert (done.returncode, "train.py: a script, not a summary" in done.stderr) == (2, True)


def test_json_is_the_contract(tmp_path: Path) -> None:
    done = run(RESIDUAL, "--batch-size", "64", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert list(answer) == [
        "version", "family", "estimator", "estimate_mib", "booked_mib", "confidence", "limit_mib", "upper_mib",
        "shards", "shard_mib", "gpu", "breakdown_mib", "warnings", "activity",
    ]  # fmt: skip
    assert (answer["version"], answer["family"], answer["gpu"], answer["shard_mib"]) == (
        1,
        "cnn",
        "h200",
        1024,
    )
    assert 0 < answer["estimate_mib"] <= answer["booked_mib"] <= answer["shards"] * answer["shard_mib"]
    assert answer["booked_mib"] < answer["upper_mib"]
    assert answer["confidence"] == 0.95, "of the booking, as in the text: 95th percentile"
    assert answer["limit_mib"] == max(answer["upper_mib"], answer["shards"] * answer["shard_mib"])
    words = f"#RAD model={RESIDUAL} batch_size=64 confidence="
    for confidence, share in (("0.995", 0.995), ("bound", 0.99)):
        (tmp_path / "job.sh").write_text(f"#!/bin/sh\n{words}{confidence}\n")
        other = json.loads(run("job.sh", "--json", cwd=tmp_path).stdout)
        assert other["confidence"] == share
        assert other["booked_mib"] >= other["upper_mib"] == answer["upper_mib"]
    assert abs(sum(answer["breakdown_mib"].values()) - answer["estimate_mib"]) <= 4


@pytest.mark.parametrize("estimator", TEXT_ESTIMATORS)
def test_every_estimator_of_texts_can_be_used(estimator: str) -> None:
    done = run(RESIDUAL, "--batch-size", "64", "--estimator", estimator, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert answer["estimator"] == estimator
    assert 0 < answer["estimate_mib"] <= answer["upper_mib"]
    # Only these two were calibrated on runs that they had not seen; the second has no quantiles but its bound.
    assert answer["confidence"] == {"rad": 0.95, "boosted": 0.99}.get(estimator)


def test_the_estimators_are_evaluated_without_torch() -> None:
    code = (
        "import sys; from gpumemnet.cli.rad_estimate import command\n"
        f"for name in {TEXT_ESTIMATORS!r}:\n"
        f"    sys.argv = ['rad-estimate', {RESIDUAL!r}, '--batch-size', '8', '--estimator', name]\n"
        "    command(standalone_mode=False)\n"
        "assert not {'torch', 'numpy', 'sklearn'} & set(sys.modules)"
    )
    done = python(code)
    assert (done.returncode, done.stderr) == (0, "")


def test_weights_that_are_not_installed_say_where_they_come_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tree_model, "WEIGHTS", tmp_path)
    with pytest.raises(ModelFileError, match="pip install rad-slurm-train"):
        tree_model.read("transformer")


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (
            (RESIDUAL, "--batch-size", "8", "--estimator", "faketensor"),
            "--estimator faketensor runs the model's code: name it with --module pkg.mod:function",
        ),
        (
            ("--module", "x:y", "--estimator", "horus"),
            "--estimator horus reads a model summary, not a module; remove --module",
        ),
    ],
)
def test_an_estimator_that_cannot_answer_says_what_it_needs(args: tuple[str, ...], line: str) -> None:
    done = run(*args)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"rad-estimate: {line}\n")


def test_a_bug_of_rads_is_one_line_with_status_3_and_its_traceback_in_a_file(tmp_path: Path) -> None:
    code = (
        "from gpumemnet.cli import main, run\n"
        "def broken(invocation, **options): raise KeyError('x')\n"
        "run.run = broken\nmain()"
    )
    for state in (tmp_path, tmp_path / "a file"):
        (tmp_path / "a file").touch()
        done = python(code, RESIDUAL, XDG_STATE_HOME=str(state))
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (3, "", 1)
        assert done.stderr.startswith("rad-estimate: internal error, please report it: KeyError: 'x'; ")
    assert "Traceback (most recent call last)" in (tmp_path / "rad" / "bugs.log").read_text()


def test_a_job_script_is_read(tmp_path: Path) -> None:
    (tmp_path / "my net.txt").write_text(Path(RESIDUAL).read_text())
    (tmp_path / "job.sh").write_text(
        '#!/bin/sh\n#RAD model="my net.txt" batch_size=64 optimizer=sgd\npython x.py\n'
    )
    done = run("job.sh", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["breakdown_mib"]["optimizer"] == 0
    lines = run("job.sh", "--sbatch", cwd=tmp_path).stdout
    assert "#RAD 'model=my net.txt' batch_size=64 optimizer=sgd" in lines
    (tmp_path / "again.sh").write_text(f"#!/bin/sh\n{lines}")
    assert run("again.sh", "--json", cwd=tmp_path).stdout == done.stdout


def test_what_is_booked_at_a_confidence_and_what_the_job_may_hold_at_most(tmp_path: Path) -> None:
    (tmp_path / "bound.sh").write_text(f"#!/bin/sh\n#RAD model={RESIDUAL} batch_size=64 confidence=bound\n")
    bound = json.loads(run("bound.sh", "--json", cwd=tmp_path).stdout)
    assert bound["booked_mib"] == bound["upper_mib"]
    unsaid = json.loads(run(RESIDUAL, "--batch-size", "64", "--json").stdout)
    assert unsaid == json.loads(run(RESIDUAL, "--batch-size", "64", "--confidence", "0.95", "--json").stdout)
    (tmp_path / "job.sh").write_text(f"#!/bin/sh\n#RAD model={RESIDUAL} batch_size=64 confidence=0.8\n")
    for args in (
        (RESIDUAL, "--batch-size", "64", "--confidence", "0.8"),
        ("job.sh",),
        ("job.sh", "--confidence", "0.8"),
    ):
        chosen = json.loads(run(*args, "--json", cwd=tmp_path).stdout)
        assert chosen["estimate_mib"] <= chosen["booked_mib"] < chosen["upper_mib"] == bound["upper_mib"]
        assert chosen["shards"] == -(-chosen["booked_mib"] // chosen["shard_mib"])
        line = run(*args, cwd=tmp_path).stdout
        assert f"booked {human(chosen['shards'] * chosen['shard_mib'] * MIB)} (80th percentile)" in line
        above = chosen["upper_mib"] > chosen["shards"] * chosen["shard_mib"]  # else its shards are its limit
        assert (f"limit {human(chosen['upper_mib'] * MIB)}" in line) is above
        explained = run(*args, "--explain", cwd=tmp_path).stdout
        assert ("the most that it may allocate" in explained) is above
        assert "confidence=0.8" in run(*args, "--sbatch", cwd=tmp_path).stdout
    done = run(RESIDUAL, "--batch-size", "64", "--confidence", "1")
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize("form", ["line", "--json", "--explain", "--sbatch"])
def test_every_form_of_the_answer(form: str, golden: Golden) -> None:
    forms = () if form == "line" else (form,)
    done = run("models/resnet50_torchinfo.txt", "--batch-size", "64", *forms, cwd=EXAMPLES)
    assert (done.returncode, done.stderr) == (0, "")
    golden(f"rad-estimate/{form.strip('-')}.txt", done.stdout)


def test_the_table_of_the_examples(golden: Golden) -> None:
    lines = []
    for path in sorted((EXAMPLES / "models").glob("*.txt")):
        done = run(f"models/{path.name}", "--batch-size", "64", "--seq-len", "128", cwd=EXAMPLES)
        lines.append(f"{path.name}: {done.stdout}{done.stderr}")
    golden("rad-estimate/examples.txt", "".join(lines))


def bad_files(folder: Path) -> dict[str, str]:
    (folder / "empty").write_text("")
    (folder / "binary").write_bytes(bytes(range(256)))
    (folder / "cut").write_text(Path(RESIDUAL).read_text()[:900])
    with (folder / "huge").open("wb") as file:
        file.truncate(100 << 20)
    os.mkfifo(folder / "fifo")
    (folder / "link").symlink_to("nowhere")
    (folder / "folder").mkdir()
    (folder / "wide.sh").write_text("#!/bin/sh\n#RAD batch_size=0\n", encoding="utf-16")
    (folder / "bom.sh").write_text("\ufeff#!/bin/sh\r\n#RAD batch_size=0\r\n")
    return {
        "missing": "no such file; check the path",
        "empty": "the file is empty; print the model's summary into it",
        "binary": "not text (it contains zero bytes); save the summary as plain text",
        "cut": "the table is cut off before 'Total params'; print the summary again and save it unchanged",
        "huge": "100 MiB is too large for a model summary; save only the printed summary",
        "fifo": "not a regular file; name a text file",
        "link": "no such file; check the path",
        "folder": "not a regular file; name a text file",
        "bom.sh": "a byte order mark is before #!, so sbatch refuses the job script; remove it: "
        r"sed -i '1s/^\xEF\xBB\xBF//' bom.sh",
        "wide.sh": "it is in UTF-16, so sbatch refuses the job script; save it as UTF-8 without a byte order mark",
    }


def test_bad_files_are_one_clear_line_and_exit_2(tmp_path: Path) -> None:
    for name, line in bad_files(tmp_path).items():
        done = run(name, "--batch-size", "8", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, ""), name
        assert done.stderr.startswith(f"rad-estimate: {name}"), done.stderr
        assert done.stderr.endswith(f"{line}\n"), done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "args",
    [
        (), (RESIDUAL,), (RESIDUAL, "--batch-size", "0"), (RESIDUAL, "--batch-size", "1e99"),
        (RESIDUAL, "--batch-size", "abc"), (RESIDUAL, "--optimizer", "adm"), (RESIDUAL, "--nonsense"),
        (RESIDUAL, "--batch-size", "8", "--gpu", "abacus"), (RESIDUAL, "--batch-size", "8", "--estimator", "x"),
        (RESIDUAL, "--batch-size", "8", "--input", "axb"), ("a", "b"),
    ],
)  # fmt: skip
def test_bad_options_are_one_line_and_exit_2(args: tuple[str, ...]) -> None:
    done = run(*args)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert "Traceback" not in done.stderr


def test_the_booking_and_not_the_bound_decides_whether_a_job_fits(tmp_path: Path) -> None:
    (tmp_path / "m.txt").write_text("Net(\n  (a): Conv2d(3, 64, kernel_size=(3, 3))\n  (b): ReLU()\n)\n")
    arguments = ("m.txt", "--batch-size", "64", "--gpu", "mine", "--gpu-memory")
    wide = json.loads(run(*arguments, "80G", "--json", cwd=tmp_path).stdout)
    between = (wide["booked_mib"] + wide["upper_mib"]) // 2
    assert wide["booked_mib"] < between < wide["upper_mib"]
    assert run(*arguments, f"{between}M", cwd=tmp_path).returncode == 0
    small = run(*arguments, f"{wide['booked_mib'] - 1}M", cwd=tmp_path)
    assert (small.returncode, "does not fit on one mine" in small.stderr) == (1, True)


def test_a_job_that_fits_on_no_such_gpu_is_answered_and_is_a_finding() -> None:
    done = run("models/resnet50_torchinfo.txt", "--batch-size", "64000", cwd=EXAMPLES)
    assert (done.returncode, done.stdout.count("estimated ")) == (1, 1)
    assert done.stderr.startswith("rad-estimate: ") and " GiB does not fit on one h200 of " in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (["python", "train.py"], "write -- before the command: rad-estimate -- python train.py"),
        (
            ["--save", "k.rad", "python", "train.py", "--lr", "1"],
            "write -- before the command: rad-estimate --save k.rad -- python train.py --lr 1",
        ),
        (["train.py"], "to make one, run: rad-estimate --save m.rad -- python train.py"),
        (["--", "train.py"], "name the Python that trains before it: rad-estimate -- python train.py"),
        (["--gpu-memory", "24", "--gpu", "rtx4090", RESIDUAL], "write for example --gpu-memory 24G"),
    ],
)
def test_a_user_that_means_a_script_or_a_gpu_reads_how_to_write_it(
    tmp_path: Path, words: list[str], fix: str
) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.rstrip().endswith(fix), done.stderr


def test_a_python_without_torch_is_informed_where_to_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\")\n")
    done = run("--", sys.executable, "train.py", cwd=tmp_path)
    assert done.returncode == 2 and "run it where it trains: after `conda activate`" in done.stderr


def test_a_model_in_a_folder_where_one_may_not_look_is_no_bug(tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(f"#!/bin/sh\n#RAD model={'x' * 300}/m.txt\n")  # a name that stat refuses
    done = run("job.sh", cwd=tmp_path)
    assert done.returncode == 2 and "internal error" not in done.stderr, done.stderr


def test_on_a_terminal_it_says_what_one_waits_for(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit(3)\n")
    shown, terminal = os.openpty()
    argv = [sys.executable, "-c", "from gpumemnet.cli import main; main()", "--", sys.executable, "train.py"]
    env = {**os.environ, "PYTHONPATH": str(WEIGHTS.parents[1])}
    done = subprocess.run(argv, stderr=terminal, cwd=tmp_path, env=env, timeout=within(60), check=False)
    os.close(terminal)
    directives = os.read(shown, 4096).decode()
    os.close(shown)
    first, second, *_ = directives.splitlines()
    assert done.returncode == 2 and first.endswith("at most 5 minutes") and "could not be traced" in second, (
        directives
    )
    quiet = subprocess.run(
        argv, stderr=subprocess.PIPE, cwd=tmp_path, env=env, timeout=within(60), check=False
    )
    assert b"minutes" not in quiet.stderr, "programs read it"


@pytest.mark.skipif(find_spec("torch") is not None, reason="says what to do where there is no torch")
def test_a_module_without_torch_is_reported_with_the_python_lacks_it(tmp_path: Path) -> None:
    done = run("--module", "model.py:make", "--input", "8x3", cwd=tmp_path)
    assert done.returncode == 2 and f"own Python, {sys.executable}, which has no PyTorch" in done.stderr
