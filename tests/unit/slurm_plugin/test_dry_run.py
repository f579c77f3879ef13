"""rad-estimate on a machine with a rad.toml; tests/cluster/submission/test_dry_run.py compares with sbatch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from paths import CHECKOUT

from gpumemnet.estimators.tree_model import WEIGHTS
from gpumemnet.units import MIB, human, percentile
from slurm_plugin.core.booking.confidence import SHARES
from slurm_plugin.core.history.site_quantiles import QuantileLimits
from slurm_plugin.core.history.site_quantiles_file import LearnedQuantiles, to_text

pytestmark = pytest.mark.slow

TOML = """
mode = "{mode}"
default_partition = "gpu"
gpu = "a100"
[partition.gpu]
collocate = true
gpu_memory_mib = 40000
compute_overcommit = 0.0
shard_mib = 2000
exclusive_form = "shards"
[partition.plain]
"""
MODEL = CHECKOUT / "examples" / "models" / "resnet18_torchinfo.txt"
JOB = "#!/bin/sh\n#SBATCH --gpus=1\n#RAD {words}\npython train.py\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rad.toml").write_text(TOML.format(mode="enforce"))
    (tmp_path / "m.txt").write_bytes(MODEL.read_bytes())
    return tmp_path


MAIN = "from slurm_plugin.rad_estimate import main; main()"
MADE_FOR = """
import pathlib, sys
from slurm_plugin.core.config.load import load_config
from slurm_plugin.estimate import Estimator
print(Estimator.from_config(load_config(pathlib.Path(sys.argv[1]))).made_for)
"""
"""It names the package's release, which another copy on the path may have, too."""


def run(
    folder: Path, *args: str, stdin: str | None = None, code: str = MAIN, **env: str
) -> subprocess.CompletedProcess[str]:
    variables = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(WEIGHTS.parents[1]),
        "PYTHONSAFEPATH": "1",
        **env,
    }
    if "RAD_CONFIG" not in env and not any(word.startswith("--config") for word in args):
        variables["RAD_CONFIG"] = str(folder / "rad.toml")
    argv = [sys.executable, "-c", code, *args]
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=60, cwd=folder, env=variables, input=stdin, check=False
    )


def job(folder: Path, words: str, *args: str) -> tuple[int, dict[str, Any]]:
    (folder / "job.sh").write_text(JOB.format(words=words))
    done = run(folder, "job.sh", "--json", *args)
    return done.returncode, json.loads(done.stdout)


def test_a_stated_need_is_no_missing_model(folder: Path) -> None:
    status, answer = job(folder, "memory=9G")
    assert (status, answer["sbatch"]["gres"], answer["booked_mib"]) == (0, "shard:5", 10000)
    assert answer["sbatch"]["says"] == ["RAD: requested 9.0 GiB; booked 9.8 GiB"]


def test_the_sites_gpu_shards_and_every_key_count(folder: Path) -> None:
    status, answer = job(folder, "model=m.txt batch_size=64")
    assert (status, answer["gpu"], answer["shard_mib"]) == (0, "a100", 2000)
    assert answer["sbatch"]["gres"] == f"shard:{answer['shards']}"
    assert job(folder, "model=m.txt batch_size=64 policy=exclusive")[1]["sbatch"]["gres"] == "shard:20"
    assert job(folder, "model=m.txt batch_size=64 gpus=2")[1]["shards"] > answer["shards"]


@pytest.mark.parametrize(
    ("site", "words", "share"),
    [
        ("", "", 0.95),
        ("confidence = 0.8", "", 0.8),
        ("confidence = 0.8", "confidence=0.9", 0.9),
        ("", "confidence=0.6", 0.6),
        ("", "gpus=2", 0.95),
        ('confidence = "bound"', "", 0.99),
        ("", "policy=exclusive", None),
    ],
)
def test_json_has_the_figures_of_sbatchs_line(
    folder: Path, site: str, words: str, share: float | None
) -> None:
    """Percentile and limit of the booking, as the partition or the user chose them."""
    toml = folder / "rad.toml"
    toml.write_text(toml.read_text().replace("shard_mib = 2000", f"shard_mib = 100\n{site}"))
    _, answer = job(folder, f"model=m.txt batch_size=256 {words}")
    (line,) = answer["sbatch"]["says"]
    assert answer["confidence"] == share
    if share is None:
        assert answer["limit_mib"] == answer["booked_mib"] == 40000
        return
    limit = f", limit {human(answer['limit_mib'] * MIB)}"
    assert f"booked {human(answer['booked_mib'] * MIB)} ({percentile(share)})" in line
    assert (limit in line) == (answer["limit_mib"] > answer["booked_mib"]) == ("limit" in line)
    done = run(folder, "job.sh", "--explain")
    assert f"exceeded by at most {100 * (1 - share):.3g}% of jobs" in done.stdout


def test_a_script_longer_than_is_read_gets_the_same_word(folder: Path) -> None:
    words = "memory=9G\n" + "# the licence\n" * 4700 + "#RAD gpus=2"
    status, answer = job(folder, words)
    assert (status, answer["sbatch"]["gres"]) == (2, "shard:5")
    assert any("#RAD lines after the first 64 KiB are not read" in line for line in answer["sbatch"]["says"])


def test_options_of_the_command_line_stand_for_what_the_script_says(folder: Path) -> None:
    _, small = job(folder, "model=m.txt batch_size=64")
    _, large = job(folder, "model=m.txt batch_size=64", "--batch-size", "256")
    assert large["shards"] > small["shards"]
    assert job(folder, "memory=9G", "--options=-p plain")[1]["sbatch"]["decision"] == "not our partition"
    assert job(folder, "memory=9G", "--options=--gpus=2")[1]["sbatch"]["gres"] == "gpu:2"


def test_what_the_site_learned_is_reported_as_radd_books_it(folder: Path) -> None:
    toml = folder / "rad.toml"
    file = folder / "quantiles.json"
    toml.write_text(f'site_quantiles = "{file}"\n{toml.read_text()}')
    _, before = job(folder, "model=m.txt batch_size=256")
    unread = f"sbatch may book another amount: this site's statistics cannot be read here ({file})"
    assert before["sbatch"]["learned"].startswith(unread)
    raised = QuantileLimits(
        lowest=(2.0,) * len(SHARES), highest=(3.0,) * len(SHARES), runs=90, models=40, users=9
    )
    groups = {"torchinfo@a100": raised}
    made_for = run(folder, str(toml), code=MADE_FOR).stdout.strip()
    file.write_text(to_text(LearnedQuantiles(made_for=made_for, time_s=1.0, groups=groups)))
    _, after = job(folder, "model=m.txt batch_size=256")
    width = before["upper_mib"] - before["estimate_mib"]
    assert after["upper_mib"] == pytest.approx(before["upper_mib"] + width, abs=3)
    assert after["shards"] > before["shards"] and after["estimate_mib"] == before["estimate_mib"]
    reported = "e-calibrated by 90 runs of this site (40 models, 9 users): 95 % = estimate x "
    assert after["sbatch"]["learned"].startswith("r" + reported)
    assert "\nR" + reported in run(folder, "job.sh", "--explain").stdout
    assert job(folder, "memory=9G")[1]["sbatch"]["learned"] is None


def test_the_status_shows_fits_refused_and_not_understood(folder: Path) -> None:
    assert job(folder, "memory=9G")[0] == 0
    status, answer = job(folder, "memory=60G")
    assert status == 1 and "--gpus=2" in answer["sbatch"]["refusal"]
    status, answer = job(folder, "memory=lots optimizer=adamm model=m.txt")
    assert status == 2 and answer["sbatch"]["gres"] == "shard:20", "sbatch takes it, with a GPU of its own"
    first, second, last = answer["sbatch"]["says"]
    assert (
        last == "RAD: the directive above was ignored; the job gets a whole GPU; "
        "to change that, cancel the job, fix the directive and resubmit"
    )
    assert first.startswith(f"RAD: {folder}/job.sh:3: memory=lots") and "optimizer 'adamm'" in second
    status, answer = job(folder, "model=none.txt")
    assert status == 2
    assert answer["sbatch"]["says"][0] == f"RAD: none.txt: no such file in {folder}; check the path"


def test_a_job_that_says_nothing_hears_what_it_gets_and_what_to_say(folder: Path) -> None:
    (folder / "job.sh").write_text("#!/bin/sh\n#SBATCH --gpus=1\npython train.py\n")
    first, second = run(folder, "job.sh").stdout.splitlines()
    assert first == "requests shard:20 in partition gpu (a whole GPU)"
    assert second.startswith("note: the memory need of its model is unknown; add #RAD model=m.rad, made by: ")
    assert "note: " not in run(folder, "job.sh", "--options=-p plain").stdout
    reported = run(folder, "job.sh", "--options=--gpus=2").stdout
    assert reported == "requests gpu:2 in partition gpu (whole GPUs)\n"
    assert "note: " not in run(folder, "job.sh", "--options=--comment=rad:policy=exclusive").stdout


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            "#SBATCH -p gpu -N1\n#SBATCH hetjob\n#SBATCH --gpus=1\n#RAD memory=9G",
            "heterogeneous job cannot share",
        ),
        (
            "#SBATCH -p plain --gpus=1\n#RAD memory=9G",
            "partition plain is not managed; #RAD lines have no effect",
        ),
        ("#SBATCH -p gpu,plain --gpus=1\n#RAD memory=9G", "the partitions gpu,plain treat #RAD differently"),
        ("#SBATCH -p gpu,plain --gpus=1\n#RAD memry=9G", "the partitions gpu,plain treat #RAD differently"),
        ("#SBATCH --gres=gpu:1g.10gb:1\n#RAD memory=9G", "a MIG instance cannot be shared"),
        ("#SBATCH --gpus=1\n  #RAD memory=9G", "is a comment, no #RAD line; write #RAD memory=9G"),
        ("#SBATCH --gpus=1\n#RAD memory=100M", "memory=100M is less than a process uses without a model ("),
        ("#SBATCH --gpus=1 --comment=RAD:memory=6G", "is no rad: directive; write rad:memory=6G"),
        ("#SBATCH --gpus=1 --comment=rad=memory=6G", "is no rad: directive; write rad:memory=6G"),
        ("#SBATCH --gpus=1 --comment='x;rad:memory=6G,gpus=1'", "write rad:memory=6G,gpus=1"),
        ("#SBATCH --gpus=1 --comment='rad; memory=6G'", "is no rad: directive; write rad:memory=6G"),
        ("#SBATCH --gpus=1 --comment='rad: memory=6G'", "nothing follows rad:; write rad:memory=6G"),
    ],
)
def test_a_directive_without_effect_is_named(folder: Path, lines: str, words: str) -> None:
    (folder / "job.sh").write_text(f"#!/bin/sh\n{lines}\npython train.py\n")
    reported = json.loads(run(folder, "job.sh", "--json").stdout)["sbatch"]
    assert any(words in line for line in reported["says"]), reported
    silent = "\n".join(line for line in lines.splitlines() if "RAD" not in line).partition(" --comment")[0]
    (folder / "job.sh").write_text(f"#!/bin/sh\n{silent}\npython train.py\n")
    assert json.loads(run(folder, "job.sh", "--json").stdout)["sbatch"]["says"] == []


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "#!/bin/sh\r\n#SBATCH --gpus=1\r\n#RAD memory=9G\r\n",
            "DOS line breaks, so sbatch refuses the job script; remove them: ",
        ),
        ("#!/bin/sh\n#SBATCH --gpus=1\n#RAD memory=9G\ntrue\r\n", "sed -i 's/\\r$//' job.sh"),
        ("# mine\n#!/bin/sh\n#SBATCH --gpus=1\n", "line 1 does not start with #!"),
        (
            "\ufeff#!/bin/sh\n#SBATCH --gpus=1\n#RAD memory=9G\n",
            "job.sh: a byte order mark is before #!, so sbatch",
        ),
        (
            "#!/bin/sh\n#SBATCH --gpus=1\n#RAD memory=9G\n\0",
            "job.sh: it has NUL bytes, so sbatch refuses the job",
        ),
        ("# mine\0\n#SBATCH --gpus=1\n", "line 1 does not start with #!"),
    ],
)
def test_a_script_that_sbatch_refuses_is_refused_with_or_without_a_cluster(
    folder: Path, script: str, words: str
) -> None:
    (folder / "job.sh").write_bytes(script.encode())
    for code in (MAIN, "from gpumemnet.cli import main; main()"):
        done = run(folder, "job.sh", code=code)
        assert (done.returncode, done.stdout) == (2, "") and words in done.stderr, done


def test_other_gres_of_the_same_option_are_named(folder: Path) -> None:
    for gres, requested in (
        ("gpu:v100:1,nvme:10", "gpu:v100:1,nvme:10"),
        ("gpu:1,nvme:10", "nvme:10,shard:20"),
    ):
        (folder / "job.sh").write_text(f"#!/bin/sh\n#SBATCH --gres={gres}\ntrue\n")
        assert json.loads(run(folder, "job.sh", "--json").stdout)["sbatch"]["gres"] == requested


def test_all_mistakes_are_named_and_sbatch_says_where(folder: Path) -> None:
    words = "precision=foo batch_size=0 bath=1 optimizer=adma memory=lots policy=x retry=y"
    (folder / "job.sh").write_text(JOB.format(words=words))
    done = run(folder, "job.sh")
    assert "RAD: 2 more mistakes in #RAD lines; to see all, run: rad-estimate " in done.stdout
    for word in words.split():
        assert word.partition("=")[2] in done.stdout + done.stderr or "bath" in done.stdout
    assert "policy" in done.stderr and "retry" in done.stderr and "bath" not in done.stderr


def test_amounts_are_read_as_they_are_printed(folder: Path) -> None:
    status, answer = job(folder, "memory=7.8G")
    assert (status, answer["sbatch"]["gres"]) == (0, "shard:4")


def test_a_model_in_a_script_that_is_no_file_is_named(folder: Path) -> None:
    done = run(folder, "-", stdin=JOB.format(words="model=m.txt"))
    assert done.stdout.splitlines()[1].endswith("submit a file: sbatch job.sh")


def test_a_summary_is_submitted_as_a_job_for_one_gpu(folder: Path) -> None:
    done = run(folder, "m.txt", "--batch-size", "64")
    first, second, *_ = done.stdout.splitlines()
    assert first.startswith("sbatch: RAD: estimated ") and done.returncode == 0
    assert second.startswith("requests shard:") and second.endswith(" in partition gpu")


def test_an_input_that_no_job_can_state_counts_here_and_sbatch_does_not_know_it(folder: Path) -> None:
    net = "Net(\n  (c): Conv1d(1, 64, kernel_size=(80,), stride=(4,))\n  (fc): Linear(64, 35, bias=True)\n)\n"
    (folder / "wave.txt").write_text(net)
    done = run(folder, "wave.txt", "--batch-size=32", "--input=32x1x480000", "--json")
    assumed = json.loads(run(folder, "wave.txt", "--batch-size=32", "--json").stdout)
    stated = json.loads(done.stdout)
    assert stated["estimate_mib"] > 2 * assumed["estimate_mib"] and "sbatch" not in stated
    assert any("a job cannot state --input" in line for line in stated["warnings"])
    refused = run(folder, "wave.txt", "--batch-size=32", "--input=32x1x480000", "--ask")
    assert refused.returncode == 2 and "leave one of both out" in refused.stderr


def test_from_standard_input(folder: Path) -> None:
    done = run(folder, "-", "--json", stdin=JOB.format(words="memory=9G"))
    assert json.loads(done.stdout)["sbatch"]["gres"] == "shard:5"
    done = run(folder, "-", "--json", "--batch-size=64", stdin=MODEL.read_text())
    assert done.returncode == 0 and json.loads(done.stdout)["estimate_mib"] > 0


def test_observe_and_off_say_what_sbatch_says_then_nothing(folder: Path) -> None:
    for mode in ("observe", "off"):
        (folder / "rad.toml").write_text(TOML.format(mode=mode))
        status, answer = job(folder, "memory=60G")
        assert (status, answer["sbatch"]["says"], answer["sbatch"]["gres"]) == (0, [], "gpu:1")
    (folder / "rad.toml").write_text(TOML.format(mode="enforce") + "[features]\nsubmit = false\n")
    status, answer = job(
        folder, "memory=60G nonsense=1"
    )  # of which rad-estimate complains, and sbatch does not
    assert (status, answer["sbatch"]["says"], answer["sbatch"]["gres"]) == (2, [], "gpu:1")


@pytest.mark.parametrize(
    ("words", "would"),
    [
        ("memory=9G", "would request shard:5"),
        ("policy=exclusive", "would request shard:20"),
        ("memory=60G", "would refuse it: RAD: the job was refused: requested 60.0 GiB"),
    ],
)
def test_where_rad_observes_a_user_reads_what_it_would_do(folder: Path, words: str, would: str) -> None:
    (folder / "rad.toml").write_text(TOML.format(mode="observe"))
    (folder / "job.sh").write_text(JOB.format(words=words))
    (line,) = run(folder, "job.sh").stdout.splitlines()
    assert line.startswith(f"requests gpu:1 in partition gpu; RAD only observes here and {would}"), line
    assert "observes" not in run(folder, "job.sh", "--options=-p plain").stdout


@pytest.mark.parametrize(
    ("mode", "more", "options", "lines"),
    [
        ("enforce", "", "", 3),
        ("off", "", "", 0),
        ("observe", "", "", 0),
        ("enforce", "[features]\nsubmit = false\n", "", 0),
        ("enforce", '[paths]\nslurm_conf = "slurm.conf"\n', "", 0),
        ("enforce", "", "-p plain", 1),
    ],
    ids=["on", "off", "observe", "no submissions", "a Slurm without shards", "another partition"],
)
def test_a_summary_that_cannot_be_read_is_reported_only_where_sbatch_would_read_it(
    folder: Path, mode: str, more: str, options: str, lines: int
) -> None:
    (folder / "slurm.conf").write_text("GresTypes=gpu\nNodeName=n0 Gres=gpu:1\n")
    more = more.replace("slurm.conf", str(folder / "slurm.conf"))
    (folder / "rad.toml").write_text(TOML.format(mode=mode) + more)
    (folder / "broken.txt").write_text("no summary\n")
    _, answer = job(folder, "model=broken.txt batch_size=64", *([f"--options={options}"] if options else []))
    assert len(answer["sbatch"]["says"]) == lines, answer


def test_an_unknown_gpu_can_be_recognised_by_its_memory(folder: Path) -> None:
    done = run(folder, "m.txt", "--batch-size=64", "--gpu=rtx4090", "--gpu-memory=24G", "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["gpu"]) == (0, "rtx4090") and "sbatch" not in answer
    small = run(folder, "m.txt", "--batch-size=64", "--gpu=rtx4090", "--gpu-memory=2G")
    assert small.returncode == 1 and "does not fit on one rtx4090 of 2.0 GiB" in small.stderr
    wrong = run(folder, "m.txt", "--gpu-memory=much")
    assert wrong.returncode == 2 and "write for example --gpu-memory 24G" in wrong.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, ": No such file"),
        ("moed = 1", ":1: unknown key moed; did you mean mode"),
        ("# the site's\ngpu = 'abacus'", ":2: gpu: unknown GPU"),
        ("# the site's\n\nestimator = 'unknown'", ":3: estimator is 'unknown'; it must be one of"),
    ],
    ids=["missing", "wrong key", "unknown GPU", "unknown estimator"],
)
def test_a_rad_toml_that_cannot_be_used_is_one_line(folder: Path, text: str | None, words: str) -> None:
    path = folder / "other.toml"
    if text is not None:
        path.write_text(text)
    for done in (run(folder, "m.txt", f"--config={path}"), run(folder, "m.txt", RAD_CONFIG=str(path))):
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert f"rad-estimate: {path}{words}" in done.stderr


def test_errors_are_json_too(folder: Path) -> None:
    done = run(folder, "none.txt", "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["status"]) == (2, 2) and "no such file" in error["lines"][0]


def test_without_a_rad_toml_it_answers_for_a_gpu(folder: Path) -> None:
    (folder / "job.sh").write_text(JOB.format(words="memory=9G"))
    code = "from gpumemnet.cli import main; main()"
    env = {**os.environ, "PYTHONPATH": str(WEIGHTS.parents[1])}
    argv = [sys.executable, "-c", code, "job.sh"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd=folder, env=env, check=False)
    assert done.returncode == 0 and "booked 9.0 GiB: 9 shards" in done.stdout


def test_advice_counts_with_the_clusters_gpus_and_partitions(folder: Path) -> None:
    rows = json.loads(run(folder, "m.txt", "--batch-size=64", "--compare", "--json").stdout)["gpus"]
    assert [(row["partition"], row["gpu"], row["has_mib"]) for row in rows] == [("gpu", "a100", 40000)]
    assert rows[0]["asks"].startswith("shard:")
    rows = json.loads(run(folder, "m.txt", "--largest", "--json").stdout)["largest"]
    assert rows[0]["has_mib"] == 40000


def test_the_shell_can_complete_options(folder: Path) -> None:
    words = {"COMP_WORDS": "rad-estimate --swe", "COMP_CWORD": "1", "_RAD_ESTIMATE_COMPLETE": "bash_complete"}
    assert "--sweep" in run(folder, **words).stdout
