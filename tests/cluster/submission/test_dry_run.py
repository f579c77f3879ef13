"""`rad-estimate` says what sbatch says: generated job scripts, each submitted to a real Slurm and compared by word."""

from __future__ import annotations

import json
import os
import random
import re
from typing import Any

import pytest

from gpumemnet.cli.invocation import EstimateExit
from lab.jobs import Jobs
from lab.scripts import drawn

pytestmark = pytest.mark.cluster

EXAMPLES = int(os.environ.get("RAD_DRY_RUNS", "12"))
"""A few in the suite; docs/measurements/2026-11-dry-run.md says what came of some hundred on each Slurm."""


def dry_run(jobs: Jobs, *words: str) -> tuple[int, dict[str, Any]]:
    """Run rad-estimate as the submitting user, in the same folder."""
    program = jobs.cluster.place.venv / "bin" / "rad-estimate"
    config = f"--config={jobs.cluster.place.etc}/rad.toml"
    text = jobs.cluster.slurm(
        "runuser",
        "-u",
        "nobody",
        "--",
        "sh",
        "-c",
        f'cd "{jobs.folder}" && "$@" 2>&1; echo "status=$?"',
        "sh",
        str(program),
        *words,
        config,
        "--json",
    )
    *reported, status = text.splitlines()
    return int(status.removeprefix("status=")), json.loads(reported[0])


def normal(gres: str) -> set[str]:
    """Return the items of a request, each with its number."""
    items = [item.replace("=", ":") for item in gres.split(",") if item]
    return {item if re.search(r":\d+$", item) else f"{item}:1" for item in items}


def said_by_slurm(messages: str) -> list[str]:
    return [line[line.index("RAD: ") :] for line in messages.splitlines() if "RAD: " in line]


def gres_of(fields: dict[str, str]) -> str:
    text = fields.get("TresPerNode") or fields.get("TresPerJob") or fields.get("TresPerTask") or ""
    return re.sub(r"(^|,)(cpu=\d+,?|gres[:/])", r"\1", text).strip(",")


def test_sbatch_says_what_the_dry_run_said(jobs: Jobs) -> None:
    draw = random.Random(int(os.environ.get("RAD_SEED", "7")))
    wrong = []
    for number in range(EXAMPLES):
        script, typed = drawn(draw)
        path = jobs.folder / f"job{number}.sh"
        path.write_text(script)
        status, reported = dry_run(jobs, path.name, f"--options={' '.join(typed)}")
        diagnosis = reported["sbatch"]
        job = jobs.submit(*typed, "--hold", path.name)
        said = said_by_slurm(job.messages)
        refused = diagnosis["refusal"] is not None and diagnosis["refusal"] in said
        if job.job_id is None and not refused:  # Slurm's own word, which only Slurm can say
            status, reported = dry_run(jobs, path.name, f"--options={' '.join(typed)}", "--ask")
            own = [line for line in reported["sbatch"]["slurm"] if "RAD: " not in line]
            assert status == EstimateExit.FINDINGS and any(line in job.messages for line in own), (
                script,
                typed,
                reported,
            )
            continue
        expected = [*diagnosis["says"], *([diagnosis["refusal"]] if diagnosis["refusal"] else [])]
        requested = gres_of(jobs.fields(job.job_id)) if job.job_id is not None else ""
        taken = status != EstimateExit.FINDINGS
        same = said == expected and taken == (job.job_id is not None)
        if not same or (taken and normal(requested) != normal(diagnosis["gres"])):
            wrong.append(f"{script}{typed}: expected {expected} {diagnosis['gres']} and status {status},")
            wrong.append(f"got {requested}: {job.messages}")
    assert not wrong, "\n".join(wrong)


ODD = {
    "crlf": "#!/bin/bash\r\n#SBATCH --gpus=1\r\n#RAD memory=6G\r\ntrue\r\n",
    "no-shebang": "# my job\n#!/bin/bash\n#SBATCH --gpus=1\n#RAD memory=6G\ntrue\n",
    "het": "#!/bin/bash\n#SBATCH -p gpu -N1\n#SBATCH hetjob\n#SBATCH -p gpu --gres=gpu:1\n#RAD memory=9G\ntrue\n",
    "several partitions": "#!/bin/bash\n#SBATCH -p gpu,plain --gpus=1\n#RAD memory=6G\ntrue\n",
    "byte order mark": "\ufeff#!/bin/bash\n#SBATCH --gpus=1\n#RAD memory=6G\ntrue\n",
    "NUL": "#!/bin/bash\n#SBATCH --gpus=1\n#RAD memory=6G\ntrue\n\0\n",
    "indented": "#!/bin/bash\n#SBATCH --gpus=1\n  #RAD memory=6G\ntrue\n",
    "continued": "#!/bin/bash\n#SBATCH --gpus=1 \\\n#SBATCH --mem=1G\n#RAD memory=6G\ntrue\n",
    "tasks-per-node": "#!/bin/bash\n#SBATCH --gpus=1 --tasks-per-node=1\n#RAD memory=6G\ntrue\n",
    "ray": "#!/bin/bash\n#SBATCH --nodes=1 --tasks-per-node=1 --gpus-per-task=1 --exclusive\n#RAD memory=6G\ntrue\n",
    "pbs": "#!/bin/bash\n#PBS -q gpu\n#PBS -l nodes=1:ppn=2:gpus=1\n#PBS -l walltime=1:00:00\n#RAD memory=6G\ntrue\n",
    "bsub": "#!/bin/bash\n#BSUB -q gpu\n#BSUB -n 2\n#SBATCH --gpus=1\n#RAD memory=6G\ntrue\n",
    "pbs last": "#!/bin/bash\n#PBS -q plain\n#SBATCH -p gpu --gpus=1\n#RAD memory=6G\ntrue\n",
    "comment RAD:": "#!/bin/bash\n#SBATCH --gpus=1 --comment=RAD:memory=6G\ntrue\n",
    "comment rad=": "#!/bin/bash\n#SBATCH --gpus=1 --comment=rad=memory=6G\ntrue\n",
    "four processes": "#!/bin/bash\n#SBATCH --gpus=1 -n4\n#RAD memory=12G\ntrue\n",
    "a decimal": "#!/bin/bash\n#SBATCH --gpus=1\n#RAD memory=7.8G\ntrue\n",
    "too little": "#!/bin/bash\n#SBATCH --gpus=1\n#RAD memory=100M\ntrue\n",
    "fewer GPUs than nodes": "#!/bin/bash\n#SBATCH --gpus=1 --nodes=1-2\n#RAD memory=6G\ntrue\n",
    "tasks by threads": "#!/bin/bash\n#SBATCH --gpus=1 -N1 --threads-per-core=2\n#RAD memory=6G\ntrue\n",
    "page break": "#!/bin/bash\n#SBATCH --gpus=1\n\f\n#RAD memory=6G\ntrue\n",
    "many mistakes": "#!/bin/bash\n#SBATCH --gpus=1\n#RAD a=1 b=2 c=3 d=4 e=5 f=6 g=7\ntrue\n",
}


@pytest.mark.parametrize("name", ODD)
def test_odd_scripts_are_answered_as_by_sbatch(jobs: Jobs, name: str) -> None:
    """Among them what is passed over: then both say why, and sbatch with its name in front of RAD's lines alone."""
    (jobs.folder / "odd.sh").write_bytes(ODD[name].encode())
    status, reported = dry_run(jobs, "odd.sh")
    job = jobs.submit("--hold", "odd.sh")
    if "error" in reported:
        assert (status, job.job_id) == (EstimateExit.USAGE, None), job.messages
        assert ("DOS line breaks" in str(reported)) == ("DOS line breaks" in job.messages)
        return
    assert job.job_id is not None, job.messages
    assert said_by_slurm(job.messages) == reported["sbatch"]["says"]
    assert "lua:" not in job.messages
    if name != "pbs last":
        assert reported["sbatch"]["says"], "a directive without effect gets a line"
    assert normal(gres_of(jobs.fields(job.job_id))) == normal(reported["sbatch"]["gres"])


def test_slurm_itself_can_be_queried_and_nothing_is_submitted(jobs: Jobs) -> None:
    before = set(jobs.all_fields())
    (jobs.folder / "job.sh").write_text("#!/bin/sh\n#SBATCH --gpus=1\n#RAD memory=5G\ntrue\n")
    status, reported = dry_run(jobs, "job.sh", "--ask")
    diagnosis = reported["sbatch"]
    assert status == 0 and diagnosis["starts"], diagnosis
    assert said_by_slurm("\n".join(diagnosis["slurm"])) == diagnosis["says"]
    status, reported = dry_run(jobs, "job.sh", "--ask", "--options=-p nowhere")
    diagnosis = reported["sbatch"]
    assert status == 1 and diagnosis["starts"] is None and "partition" in str(diagnosis["slurm"]), diagnosis
    status, reported = dry_run(jobs, "models/resnet18_torchinfo.txt", "--batch-size=64", "--compare", "--ask")
    (row,) = reported["gpus"]
    assert (status, row["partition"]) == (0, "gpu") and row["asks"].startswith("shard:") and row["starts"], (
        row
    )
    assert set(jobs.all_fields()) == before
