"""`rad doctor` and `rad status` on a cluster that runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs
from slurm_plugin.core.config.load import load_config
from slurm_plugin.core.errors import CommandError

pytestmark = pytest.mark.cluster


def rad(cluster: Cluster, command: str) -> dict[str, list[dict[str, object]]]:
    config = str(cluster.place.etc / "rad.n0.toml")
    tree: dict[str, list[dict[str, object]]] = json.loads(
        cluster.slurm(f"{cluster.place.venv}/bin/rad", command, "--config", config, "--json")
    )
    return tree


def top_of(cluster: Cluster) -> dict[str, Any]:
    """Return what `rad top` shows of the node, asked over HTTP as from another machine."""
    config = cluster.place.etc / "rad.n0.toml"
    place = f"n0=127.0.0.1:{load_config(config).telemetry.serve}"
    words = ("top", "--config", str(config), "--node", place, "--json")
    tree: dict[str, Any] = json.loads(cluster.slurm(f"{cluster.place.venv}/bin/rad", *words))
    return tree


def test_doctor_finds_nothing_to_fix(cluster: Cluster):
    findings = rad(cluster, "doctor")["findings"]
    seen = {finding["subject"] for finding in findings if finding["level"] == "ok"}
    assert {"rad.toml", "Slurm", "slurm.conf", "Prolog", "TaskProlog", "Epilog", "job_submit.lua"} <= seen
    assert {"cli_filter.lua", "key", "radd", "gres.conf", "GPU 0", "rad-monitor"} <= seen


def test_doctor_says_that_radd_is_gone(cluster: Cluster):
    cluster.daemons.stop("radd")
    try:
        with pytest.raises(CommandError) as reported:
            rad(cluster, "doctor")
        assert reported.value.returncode == 1
    finally:
        cluster.restart_radd()


def test_status_shows_which_job_is_where(cluster: Cluster, jobs: Jobs):
    script = jobs.folder / "share_resnet18.sh"
    script.write_text(
        script.read_text().replace("--seconds 8", "--seconds 600")
    )  # until it is cancelled below
    job_id = jobs.submit("share_resnet18.sh").job_id
    looks: list[list[dict[str, object]]] = []

    def shown() -> list[dict[str, object]]:
        gpus = rad(cluster, "status")["gpus"]
        on_them = [job for gpu in gpus for job in gpu["jobs"]]  # type: ignore[union-attr, attr-defined]
        looks.append([job for job in on_them if job["job_id"] == job_id])
        return looks[-1]

    def measured() -> bool:
        return any(job["peak_bytes"] and job["used_bytes"] for job in shown())

    cluster.wait("the job on a GPU, with a peak", measured, 60)
    (job,) = looks[-1]
    assert job["kind"] == "shared"
    assert 0 < int(str(job["used_bytes"])) <= int(str(job["booked_bytes"]))
    waits = jobs.submit("--hold", "share_resnet18.sh").job_id
    top = top_of(cluster)
    reported = [one for node in top["nodes"] for gpu in node["status"]["gpus"] for one in gpu["jobs"]]
    assert (job_id, job["booked_bytes"]) in [(one["job_id"], one["booked_bytes"]) for one in reported]
    assert [one["reason"] for one in top["waiting"] if one["job_id"] == waits] == ["JobHeldUser"]
    assert top["queue_trouble"] == ""
    cluster.slurm("scancel", str(job_id))
    jobs.wait(job_id or 0)
    cluster.wait("the GPUs are free", lambda: not shown(), 60)
