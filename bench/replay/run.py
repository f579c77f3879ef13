"""Make one run: python -m replay.run OUT --trace T --policy P [--estimates E] [--compress C] [--stand-in].

Starts a private Slurm over this machine's GPUs (or over simulated GPUs), submits the trace's jobs when their time has
come, waits until they have ended or the time is up, and writes OUT/NAME.json. A run that is there already is not made
again; one that was cut off says so and is made again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.jobs import ENDED, Jobs
from replay.figures import figures
from replay.options import COPIES, min_age_reserve_s, name_of, run_parser
from replay.plan import Planned, plan, unmeasured
from replay.policies import POLICIES, alone, directives
from replay.stage import CHECKOUT, NODE, Stage
from replay.stuck import Patience, without_mps
from replay.users import dealt_of
from replay.watch import Watch
from slurm_plugin.core.files.atomic import replace_file
from slurm_plugin.core.units import from_mib, parse_size

LOOK_S = 0.5
RERUN_S = 15.0
"""A job that failed may be run again so much later."""
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
"""A GPU's daemon knows one GPU, by the number 0."""


def main() -> int:
    """Make one run; return the exit status."""
    options = run_parser().parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / f"{name_of(options)}.json"
    if file.exists() and not json.loads(file.read_text())["cut"]:
        print(f"{file}: there already")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    result = Replay(options).run()
    replace_file(file, json.dumps(result).encode())
    print(json.dumps(result["figures"], indent=1))
    print(f"{file}: {'CUT OFF' if result['cut'] else 'complete'}")
    return 3 if result["cut"] else 0


def shards_of(fields: Mapping[str, str]) -> int:
    """Return the shards that a job requests of each of its GPUs; 0 if it requests none.

    Args:
        fields: The job, as `scontrol show job` has it.

    >>> shards_of({"TresPerNode": "gres/shard:h200:35"}), shards_of({"TresPerTask": "cpu=1,gres/shard=14"})
    (35, 14)
    """
    requested = ",".join(fields.get(name, "") for name in ("TresPerNode", "TresPerJob", "TresPerTask"))
    found = SHARDS.search(requested)
    return int(found.group(1)) if found else 0


class Replay:
    """Everything of one run."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Plan it; nothing is started."""
        self.options, self.policy = options, POLICIES[options.policy]
        self.jobs = plan(
            options.trace,
            compress=options.compress,
            gpus=options.gpus,
            first=options.first,
            one_by_one=options.exchange == COPIES,
            users=options.users,
            seed=options.seed,
            faulty=options.faulty,
        )
        if not options.stand_in and (lacking := unmeasured(self.jobs)):
            raise SystemExit(
                f"unknown how long steps take: {', '.join(lacking)}; python -m replay.check says more"
            )
        self.stage = Stage(options)
        self.stuck = ""
        self.submitted: dict[str, tuple[int, float]] = {}
        self.refused: dict[str, str] = {}
        self.seen: dict[int, dict[str, str]] = {}
        self.failed_s: dict[int, float] = {}
        self.began_s = time.time()

    def run(self) -> dict[str, Any]:
        """Make the run and return all that is known of it."""
        stop_s = time.monotonic() + self.options.limit_s
        try:
            self.known = self.stage.up(sorted({job.workload for job in self.jobs}))
            self._say("Slurm is up")
            users = dealt_of(self.options)
            watch = Watch(self.stage.place.gpus(NODE) if self.stage.simulated else None)
            watch.start()
            self.began_s = time.time()
            cut = self._submit_and_wait(stop_s, watch)
            samples = watch.stop()
            samples["times_s"] = [round(at - self.began_s, 2) for at in samples["times_s"]]
            jobs = [self._collect(job, watch) for job in self.jobs]
            return {
                "version": 1,
                "trace": self.options.trace.stem,
                "policy": self.options.policy,
                "estimates": self.options.estimates if self.policy.with_rad else None,
                "compress": self.options.compress,
                "first": self.options.first,
                "settings": dict(self.options.set),
                "min_age_reserve_s": min_age_reserve_s(self.options),
                "exchange": self.options.exchange,
                "users": users.users,
                "seed": users.seed,
                "faulty": self.options.faulty,
                "repetition": self.options.repetition,
                "stand_in": self.stage.simulated,
                "began_s": self.began_s,
                "cut": cut,
                "stuck": self.stuck,
                "machine": self._machine(),
                "figures": figures(jobs, samples),
                "jobs": jobs,
                "samples": samples,
                "logs": self._interesting_logs(),
            }
        finally:
            self.stage.down()

    # --- running --------------------------------------------------------------------------------------------------

    def _submit_and_wait(self, stop_s: float, watch: Watch) -> bool:
        """Submit each job at its time and wait for all; return whether it was cut off: out of time, or stuck."""
        slurm = Jobs(self.stage.cluster, self.stage.folder)
        patience = Patience()
        waiting = list(self.jobs)
        begin = time.monotonic()
        while waiting or not self._all_ended():
            if time.monotonic() > stop_s:
                self.seen = slurm.all_fields()
                return True
            while waiting and waiting[0].submit_s <= time.monotonic() - begin:
                self._submit(slurm, waiting.pop(0))
            self.stage.end_faults()
            self.seen = slurm.all_fields()
            self.stuck = patience.lost(time.monotonic(), self.seen, watch.active)
            self.stuck = self.stuck or without_mps(self.stage.place.log / "prolog.log")
            if self.stuck:
                self._say(self.stuck)
                return True
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
            patience_s = RERUN_S if self.policy.with_rad and state == "FAILED" else 0.0
            if now_s - self.failed_s.setdefault(number, now_s) < patience_s:
                return False
        return True

    def _submit(self, slurm: Jobs, job: Planned) -> None:
        """Submit a job; one that is refused is submitted again as its message asks, with a GPU of its own."""
        extra = self.known.get(job.workload, {})
        file = self.stage.folder / f"{job.name}.json"
        record = job.to_json() | {
            "records": str(self.stage.folder / "records"),
            "config": extra.get("config"),
            "exchange": self.options.exchange,
        }
        file.write_text(json.dumps(record))
        script = self.stage.folder / f"{job.name}.sh"
        wishes = [directives(job, self.policy, self.options.estimates, self.stage.texts, extra)]
        if self.policy.with_rad:
            wishes.append(alone(job))
        at_s = time.time()
        for lines in wishes:
            script.write_text(self._script(job, lines, file))
            answer = slurm.submit(script.name, user=self.stage.account(job))
            if answer.job_id is not None:
                self.submitted[job.name] = (answer.job_id, at_s)
                return
            self.refused.setdefault(job.name, answer.messages)
        raise SystemExit(f"{job.name}: not taken: {answer.messages}")

    def _script(self, job: Planned, lines: Sequence[str], file: Path) -> str:
        shares = self.policy.mps and job.gpus == 1 and not self.stage.simulated
        return SCRIPT.format(
            name=job.name,
            out=self.stage.folder,
            limit_min=job.limit_min,
            lines="\n".join([*lines, *(f"#SBATCH --account={it}" for it in self.stage.slurm_account(job))]),
            server=self.stage.server(self.stage.account(job)),
            mps=HAND_MPS.format(folder=self.stage.mps / self.stage.account(job)) if shares else "",
            python=sys.executable,
            client=self.stage.source
            / "bench"
            / "replay"
            / "job"
            / ("fault.py" if job.faults else "client.py"),
            job=file,
        )

    # --- collecting -----------------------------------------------------------------------------------------------

    def _collect(self, job: Planned, watch: Watch) -> dict[str, Any]:
        number, submit_s = self.submitted.get(job.name, (0, math.nan))
        fields = self.seen.get(number, {})
        records = sorted((self.stage.folder / "records").glob(f"{job.name}.*.json"))
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
            "refused": self.refused.get(job.name, ""),
            "state": fields.get("JobState", ""),
            "restarts": int(fields.get("Restarts", "0")),
            "admin_comment": fields.get("AdminComment", ""),
            "booked_mib": shards_of(fields) * parse_size("1G", default_suffix="") // from_mib(1),
            "peak_mib": watch.peaks_mib.get(number, 0),
            "runs": runs,
        }

    def _machine(self) -> dict[str, Any]:
        slurm = self.stage.cluster.slurm("slurmctld", "-V").strip()
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=CHECKOUT, capture_output=True, text=True, check=False
        ).stdout.strip()
        return {"slurm": slurm, "cpus": os.cpu_count(), "python": platform.python_version(), "commit": commit}

    def _interesting_logs(self) -> dict[str, str]:
        """Return the hooks' logs and what trainings printed that was unexpected."""
        wanted = [*self.stage.place.log.glob("*.log"), *self.options.root.glob("server.*.log")]
        wanted = [path for path in wanted if not path.name.startswith(("slurm", "munge"))]
        logs = {path.name: path.read_text(errors="replace")[-60_000:] for path in wanted if path.exists()}
        outputs = {
            path.name: path.read_text(errors="replace")[-2000:] for path in self.stage.folder.glob("*.out")
        }
        return logs | {name: text for name, text in outputs.items() if text.strip()}

    def _say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
