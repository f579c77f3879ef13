"""One run: python -m replay.run OUT --trace T --policy P [--estimates E] [--compress C] [--stand-in].

Starts a private Slurm over this machine's GPUs (or over simulated cards), submits the trace's jobs when their time has
come, waits until they have ended or the time is up, and writes OUT/NAME.json. A run that is there already is not made
again; one that was cut off says so and is made again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpumemnet.estimators.registry import ESTIMATORS
from lab.cluster import Cluster
from lab.daemons import wait_until
from lab.jobs import ENDED, Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from lab.real_gpus import real_node
from replay.figures import figures
from replay.plan import Planned, plan
from replay.policies import ESTIMATES, POLICIES, directives, rad_toml
from replay.server import placeholders
from replay.watch import Watch
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.units import from_mib, parse_size
from slurm_plugin.monitor.nvml import NvmlTelemetry

CHECKOUT = Path(__file__).resolve().parents[2]
SOURCES = ("bench/replay", "bench/gpu_campaign", "gpumemnet", "slurm_plugin")
"""What trainings import, copied to where the jobs' user may read."""
NODE = "n0"
SIMULATED_MIB = 143_600
"""As large as an H200."""
LOOK_S = 0.5
RERUN_S = 15.0
"""A job that failed may be run again so much later."""
SLURM_CONF = (
    # Limits tell backfill when jobs end, and end none: sharing makes jobs slower than their users knew.
    "OverTimeLimit=UNLIMITED",
)
SHARDS = re.compile(r"shard[:=](?:[a-z]\w*[:=])?(\d+)")
SCRIPT = """#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --output={out}/%x.out
#SBATCH --open-mode=append
#SBATCH --time={limit_min}
#SBATCH --cpus-per-task=1
#SBATCH --mem=100M
{lines}
export REPLAY_SERVER={server}
{mps}exec {python} -IS {client} {job}
"""
HAND_MPS = """\
export CUDA_MPS_PIPE_DIRECTORY={folder}/$CUDA_VISIBLE_DEVICES CUDA_VISIBLE_DEVICES=0
"""
"""A card's daemon knows one card, by the number 0."""


def main() -> int:
    """Make one run; return the exit status."""
    options = _parser().parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / f"{name_of(options)}.json"
    if file.exists() and not json.loads(file.read_text())["cut"]:
        print(f"{file}: there already")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    result = Replay(options).run()
    draft = file.with_suffix(".new")
    draft.write_text(json.dumps(result))
    draft.replace(file)
    print(json.dumps(result["figures"], indent=1))
    print(f"{file}: {'CUT OFF' if result['cut'] else 'complete'}")
    return 3 if result["cut"] else 0


def name_of(options: argparse.Namespace) -> str:
    """Return what a run is called: all that tells it from others."""
    policy = POLICIES[options.policy]
    parts = [options.trace.stem, options.policy]
    parts += [options.estimates] if policy.ours else []
    parts += [f"c{options.compress:g}", *([f"first{options.first}"] if options.first else [])]
    parts += [f"{key}={value}".replace('"', "") for key, value in options.set]
    parts += [f"pass{options.pass_hours:g}h"] if options.pass_hours else []
    parts += ["stand-in"] if options.stand_in else ["on-cpu"] if options.on_cpu else []
    return "-".join([*parts, f"r{options.repetition}"])


def shards_of(fields: Mapping[str, str]) -> int:
    """Return the shards that a job asks for of each of its GPUs; 0 if it asks for none.

    Args:
        fields: The job, as `scontrol show job` has it.

    >>> shards_of({"TresPerNode": "gres/shard:h200:35"}), shards_of({"TresPerTask": "cpu=1,gres/shard=14"})
    (35, 14)
    """
    asked = ",".join(fields.get(name, "") for name in ("TresPerNode", "TresPerJob", "TresPerTask"))
    found = SHARDS.search(asked)
    return int(found.group(1)) if found else 0


def min_age_reserve_s(options: argparse.Namespace) -> int:
    """Return Slurm's bf_min_age_reserve in a run: hours of the trace pass as fast as its jobs do."""
    return round(3600.0 * options.pass_hours / options.compress)


class Replay:
    """Everything of one run."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Plan it; nothing is started."""
        self.options, self.policy = options, POLICIES[options.policy]
        self.simulated = options.stand_in or options.on_cpu
        self.jobs = plan(options.trace, compress=options.compress, first=options.first)
        self.place = Place(root=options.root / "c", venv=options.venv)
        self.cluster = Cluster(self.place)
        self.folder = options.root / "work"
        self.source = options.root / "src"
        self.server = options.root / "server.sock"
        self.started: list[subprocess.Popen[bytes]] = []
        self.submitted: dict[str, tuple[int, float]] = {}
        self.seen: dict[int, dict[str, str]] = {}
        self.failed_s: dict[int, float] = {}
        self.began_s = time.time()

    def run(self) -> dict[str, Any]:
        """Make the run and return all that is known of it."""
        stop_s = time.monotonic() + self.options.limit_s
        shutil.rmtree(self.options.root, ignore_errors=True)
        for folder in (self.folder, self.folder / "records", self.folder / "records" / "loads"):
            folder.mkdir(parents=True)
            folder.chmod(0o1777)
        self.options.root.chmod(0o755)
        for name in SOURCES:
            skip = shutil.ignore_patterns("__pycache__")
            shutil.copytree(CHECKOUT / name, self.source / name, ignore=skip)
        try:
            server = self._start_server()  # its imports take the longest
            self._describe()
            self._start_cluster()
            self._wait_for(server)
            self._say("Slurm is up")
            watch = Watch(self.place.gpus(NODE) if self.simulated else None)
            watch.start()
            self.began_s = time.time()
            cut = self._submit_and_wait(stop_s)
            samples = watch.stop()
            samples["times_s"] = [round(at - self.began_s, 2) for at in samples["times_s"]]
            jobs = [self._collect(job, watch) for job in self.jobs]
            return {
                "version": 1,
                "trace": self.options.trace.stem,
                "policy": self.options.policy,
                "estimates": self.options.estimates if self.policy.ours else None,
                "compress": self.options.compress,
                "first": self.options.first,
                "settings": dict(self.options.set),
                "min_age_reserve_s": min_age_reserve_s(self.options),
                "repetition": self.options.repetition,
                "stand_in": self.simulated,
                "began_s": self.began_s,
                "cut": cut,
                "machine": self._machine(),
                "figures": figures(jobs, samples),
                "jobs": jobs,
                "samples": samples,
                "logs": self._interesting_logs(),
            }
        finally:
            self.cluster.down()
            for process in reversed(self.started):
                process.kill()
                process.wait()

    # --- starting -------------------------------------------------------------------------------------------------

    def _describe(self) -> None:
        """Have the workloads' configurations and texts made by a Python that has torch."""
        self.texts = self.options.out / "texts"
        self.texts.mkdir(exist_ok=True)
        self.known: dict[str, Any] = {}
        if self.options.stand_in:
            made = self.texts / "workloads.json"  # made beforehand, by whoever has torch
            self.known = json.loads(made.read_text()) if made.exists() else {}
            return
        names = sorted({job.workload for job in self.jobs})
        argv = [self.options.python, "-m", "replay.workloads", str(self.texts), *names]
        subprocess.run(argv, env=self._python_env(), check=True, timeout=180)
        self.known = json.loads((self.texts / "workloads.json").read_text())

    def _python_env(self) -> dict[str, str]:
        path = f"{self.source}/bench:{self.source}"
        return dict(os.environ) | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}

    def _start_server(self) -> subprocess.Popen[bytes]:
        """Start the process that forks trainings, as the jobs' user."""
        user = pwd.getpwnam(self.options.user)
        runs = self.options.root / "server"
        runs.mkdir()
        os.chown(runs, user.pw_uid, user.pw_gid)
        self.server = runs / "socket"
        python = sys.executable if self.options.stand_in else self.options.python
        environment = self._python_env() | placeholders() | {"HOME": str(runs), "CUDA_MODULE_LOADING": "LAZY"}
        environment.pop("SLURM_CONF", None)
        log = (self.options.root / "server.log").open("wb")
        argv = [python, "-m", "replay.server", str(self.server), *(["--stand-in"] * self.options.stand_in)]
        process = subprocess.Popen(
            argv,
            env=environment,
            cwd="/",
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=[],
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def _wait_for(self, server: subprocess.Popen[bytes]) -> None:
        def ready() -> bool:
            if server.poll() is not None:
                text = (self.options.root / "server.log").read_text()
                raise SystemExit(f"the server of trainings ended: {text[-2000:]}")
            return self.server.is_socket()

        wait_until("the server of trainings is ready", ready, timeout_s=180, clock=SystemClock())

    def _start_cluster(self) -> None:
        if self.simulated:
            node = NodeSpec(name=NODE, gpu_mib=(SIMULATED_MIB,) * self.options.gpus)
        else:
            readings = NvmlTelemetry().read()[: self.options.gpus]
            if len(readings) < self.options.gpus:
                raise SystemExit(f"{self.options.gpus} GPUs wanted, {len(readings)} here")
            node = real_node(NODE, readings)
            self.uuids = [gpu.uuid for gpu in readings]
        node = replace(node, cpus=256, memory_mib=256_000)
        lines = (*rad_toml(self.policy, self.options.estimates), *(f"{k} = {v}" for k, v in self.options.set))
        spec = ClusterSpec(
            nodes=(node,),
            sharing="mps",
            ours=self.policy.ours,
            slurm_conf=SLURM_CONF,
            scheduler=(f"bf_min_age_reserve={min_age_reserve_s(self.options)}",),
            rad_toml=lines,
            by_memory=False,
            spread_shards=("share_multi_gpu", "true") in self.options.set,
        )
        self.cluster.up(spec)
        if self.policy.ours and self.options.estimates in ESTIMATORS:
            self.cluster.set_rad("estimator", json.dumps(self.options.estimates))
        self.mps = self.options.root / "mps"
        if self.policy.mps and not self.simulated:
            self._start_mps()

    def _start_mps(self) -> None:
        """Start an MPS daemon for each card, as a site without us would."""
        user = pwd.getpwnam(self.options.user)
        for index, uuid in enumerate(self.uuids):
            folder = self.mps / str(index)
            folder.mkdir(parents=True)
            os.chown(folder, user.pw_uid, user.pw_gid)
            environment = dict(os.environ) | {
                "CUDA_VISIBLE_DEVICES": uuid,
                "CUDA_MPS_PIPE_DIRECTORY": str(folder),
                "CUDA_MPS_LOG_DIRECTORY": str(folder),
            }
            with (self.options.root / f"mps.{index}.log").open("wb") as log:
                daemon = subprocess.Popen(
                    ["nvidia-cuda-mps-control", "-f"],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    user=user.pw_uid,
                    group=user.pw_gid,
                    start_new_session=True,
                )
            self.started.append(daemon)
            control = folder / "control"
            wait_until("MPS is up", control.exists, timeout_s=15, clock=SystemClock())

    # --- running --------------------------------------------------------------------------------------------------

    def _submit_and_wait(self, stop_s: float) -> bool:
        """Submit each job at its time and wait for all; return whether time ran out."""
        slurm = Jobs(self.cluster, self.folder)
        waiting = list(self.jobs)
        begin = time.monotonic()
        while waiting or not self._all_ended():
            if time.monotonic() > stop_s:
                self.seen = slurm.all_fields()
                return True
            while waiting and waiting[0].submit_s <= time.monotonic() - begin:
                self._submit(slurm, waiting.pop(0))
            self.seen = slurm.all_fields()
            next_s = waiting[0].submit_s - (time.monotonic() - begin) if waiting else LOOK_S
            time.sleep(min(LOOK_S, max(0.0, next_s)))
        return False

    def _all_ended(self) -> bool:
        """Return whether every job has ended for good; one that failed may still be run again."""
        now_s = time.monotonic()
        for number, _ in self.submitted.values():
            state = self.seen.get(number, {}).get("JobState")
            if state not in ENDED:
                self.failed_s.pop(number, None)
                return False
            patience_s = RERUN_S if self.policy.ours and state == "FAILED" else 0.0
            if now_s - self.failed_s.setdefault(number, now_s) < patience_s:
                return False
        return True

    def _submit(self, slurm: Jobs, job: Planned) -> None:
        extra = self.known.get(job.workload, {})
        file = self.folder / f"{job.name}.json"
        record = job.to_json() | {"records": str(self.folder / "records"), "config": extra.get("config")}
        file.write_text(json.dumps(record))
        lines = directives(job, self.policy, self.options.estimates, self.texts, extra)
        shares = self.policy.mps and job.gpus == 1 and not self.simulated
        script = self.folder / f"{job.name}.sh"
        script.write_text(
            SCRIPT.format(
                name=job.name,
                out=self.folder,
                limit_min=job.limit_min,
                lines="\n".join(lines),
                server=self.server,
                mps=HAND_MPS.format(folder=self.mps) if shares else "",
                python=sys.executable,
                client=self.source / "bench" / "replay" / "client.py",
                job=file,
            )
        )
        at_s = time.time()
        answer = slurm.submit(script.name, user=self.options.user)
        if answer.job_id is None:
            raise SystemExit(f"{job.name}: not taken: {answer.messages}")
        self.submitted[job.name] = (answer.job_id, at_s)

    # --- collecting -----------------------------------------------------------------------------------------------

    def _collect(self, job: Planned, watch: Watch) -> dict[str, Any]:
        number, submit_s = self.submitted.get(job.name, (0, math.nan))
        fields = self.seen.get(number, {})
        records = sorted((self.folder / "records").glob(f"{job.name}.*.json"))
        runs = [json.loads(path.read_text()) for path in records]
        for run in runs:
            for key in ("called_s", "loaded_s", "trains_s", "end_s"):
                if key in run:
                    run[key] = round(run[key] - self.began_s, 3)
            run["progress"] = [(round(at - self.began_s, 2), step) for at, step in run.get("progress", ())]
        return job.to_json() | {
            "submit_s": None if math.isnan(submit_s) else round(submit_s - self.began_s, 3),
            "planned_submit_s": job.submit_s,
            "trains": self.known.get(job.workload, {}).get("trains", job.workload),
            "slurm_id": number,
            "state": fields.get("JobState", ""),
            "restarts": int(fields.get("Restarts", "0")),
            "admin_comment": fields.get("AdminComment", ""),
            "booked_mib": shards_of(fields) * parse_size("1G", default_suffix="") // from_mib(1),
            "peak_mib": watch.peaks_mib.get(number, 0),
            "runs": runs,
        }

    def _machine(self) -> dict[str, Any]:
        slurm = self.cluster.slurm("slurmctld", "-V").strip()
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=CHECKOUT, capture_output=True, text=True, check=False
        ).stdout.strip()
        return {"slurm": slurm, "cpus": os.cpu_count(), "python": platform.python_version(), "commit": commit}

    def _interesting_logs(self) -> dict[str, str]:
        """Return the hooks' logs and what trainings printed that was unexpected."""
        wanted = [*self.place.log.glob("*.log"), self.options.root / "server.log"]
        wanted = [path for path in wanted if not path.name.startswith(("slurm", "munge"))]
        logs = {path.name: path.read_text(errors="replace")[-60_000:] for path in wanted if path.exists()}
        outputs = {path.name: path.read_text(errors="replace")[-2000:] for path in self.folder.glob("*.out")}
        return logs | {name: text for name, text in outputs.items() if text.strip()}

    def _say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def _setting(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    return key, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="replay.run")
    parser.add_argument("out", type=Path, help="folder of results")
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--policy", choices=POLICIES, default="magm")
    parser.add_argument("--estimates", choices=ESTIMATES, default="ours")
    parser.add_argument("--compress", type=float, default=120.0)
    parser.add_argument("--first", type=int, help="only the first so many jobs of the trace")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--repetition", type=int, default=1)
    parser.add_argument("--limit-s", type=float, default=540.0, help="cut the run off after so long")
    parser.add_argument("--set", type=_setting, action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--pass-hours",
        type=float,
        default=0.0,
        help="bf_min_age_reserve in hours of the trace: jobs that have waited for less may be passed",
    )
    parser.add_argument("--stand-in", action="store_true", help="simulated cards and trainings that sleep")
    parser.add_argument("--on-cpu", action="store_true", help="simulated cards and real trainings on the CPU")
    parser.add_argument("--user", default="nobody")
    parser.add_argument("--root", type=Path, default=Path("/var/tmp/rad-replay"))
    parser.add_argument("--venv", type=Path, default=Path(sys.prefix), help="where our package is installed")
    parser.add_argument(
        "--python", default=os.environ.get("RAD_TORCH_PYTHON", "python3"), help="a Python that has torch"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
