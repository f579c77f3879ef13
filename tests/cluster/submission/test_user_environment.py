"""A job starts from whatever environment its user has: limits, closed descriptors, other paths, variables of others."""

from __future__ import annotations

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs
from slurm_plugin.core.errors import CommandError

pytestmark = pytest.mark.cluster

SCRIPT = "#!/bin/sh\n#RAD memory=5G model=none.txt\necho has $SLURM_GPUS_ON_NODE\n"
SURROUNDINGS = {
    "no file": "ulimit -f 0",
    "few descriptors": "ulimit -n 20",
    "no process": "ulimit -u 1",
    "little memory": "ulimit -v 200000",
    "no temporary folder": "export TMPDIR=/nowhere TMP=/nowhere TEMP=/nowhere",
    "no home": "unset HOME",
    "no path": "export PATH=",
    "closed input": "exec <&-",
    "closed output": "exec >&-",
    "closed errors": "exec 2>&-",
    "all closed": "exec <&- >&- 2>&-",
    "full disk": "exec >/dev/full",
    "Lua": "export LUA_PATH=/nowhere LUA_CPATH=/nowhere LUA_INIT='error()'",
    "Python": "export PYTHONPATH=/nowhere PYTHONHOME=/nowhere PYTHONVERBOSE=1 PYTHONWARNINGS=error PYTHONUTF8=7",
    "a preloaded library": "export LD_PRELOAD=/nowhere.so",
    "a locale": "export LC_ALL=de_DE.ISO-8859-1",
    "signals": "trap '' CHLD INT HUP PIPE",
}


@pytest.mark.parametrize("surrounding", SURROUNDINGS)
def test_sbatch_submits_from_any_environment(cluster: Cluster, jobs: Jobs, surrounding: str) -> None:
    (jobs.folder / "job.sh").write_text(SCRIPT)
    name = f"from-{surrounding.replace(' ', '-')}"
    sbatch = cluster.slurm("sh", "-c", "command -v sbatch").strip()
    options = f"--gpus=1 --propagate=NONE --job-name={name} --output={jobs.folder}/out"
    line = f"cd {jobs.folder}; {SURROUNDINGS[surrounding]}; {sbatch} {options} job.sh || echo status $?"
    said = cluster.slurm("runuser", "-u", "games", "--", "sh", "-c", line)
    assert "status" not in said
    rows = [row for row in jobs.all_fields().values() if row.get("JobName") == name]
    assert len(rows) == 1
    assert jobs.wait(int(rows[0]["JobId"]))["JobState"] == "COMPLETED"
    assert (jobs.folder / "out").read_text().endswith("has 1\n")


@pytest.mark.parametrize("surrounding", ["no file", "no path", "Lua", "Python", "no home", "closed errors"])
def test_an_srun_of_a_gpu_runs_from_any_environment(cluster: Cluster, surrounding: str) -> None:
    srun = cluster.slurm("sh", "-c", "command -v srun").strip()
    line = f"{SURROUNDINGS[surrounding]}; {srun} --gpus=1 /bin/sh -c 'echo has $SLURM_GPUS_ON_NODE'"
    try:
        said = cluster.slurm("runuser", "-u", "games", "--", "sh", "-c", line, timeout_s=60)
    except CommandError as exc:
        said = exc.output
    assert said.strip().endswith("has 1")
