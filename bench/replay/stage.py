"""Set up what a run needs: a private Slurm over real or simulated GPUs, MPS as at a site, the server of trainings."""

from __future__ import annotations

import argparse
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpumemnet.estimators.registry import ESTIMATORS
from lab.cluster import Cluster
from lab.daemons import wait_until
from lab.files import rewrite
from lab.place import ClusterSpec, NodeSpec, Place
from lab.real_gpus import real_node
from lab.simulated_mps import end_server
from replay.dies import with_parent
from replay.job.server import placeholders
from replay.options import min_age_reserve_s
from replay.plan import Planned
from replay.policies import POLICIES, rad_toml
from replay.users import accounts, make_accounts
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.monitor.gpus.nvml import NvmlTelemetry
from slurm_plugin.simulate.traces.users import account_of

CHECKOUT = Path(__file__).resolve().parents[2]
SOURCES = ("bench/replay", "bench/gpu_campaign", "gpumemnet", "slurm_plugin")
"""What trainings import, copied to where the jobs' user may read."""
NODE = "n0"
SLURM_ACCOUNT = "lab{}"
SIMULATED_MIB = 143_600
"""As large as an H200."""
SLURM_CONF = (
    # Limits tell backfill when jobs end, and end none: sharing makes jobs slower than their users knew.
    "OverTimeLimit=UNLIMITED",
)


class Stage:
    """The processes that a run needs, and where its files are.

    Attributes:
        simulated: Whether the GPUs are.
        place: Of the private Slurm.
        cluster: The private Slurm.
        folder: Where jobs run; what trainings write of themselves is in `records`.
        source: What trainings import.
        texts: Texts of the workloads' models.
        mps: Folders of the MPS daemons, by account and index of their GPU.
        accounts: Accounts of the users, in their order.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        """Start nothing."""
        self.options, self.policy = options, POLICIES[options.policy]
        self.simulated = options.stand_in or options.on_cpu
        self.place = Place(root=options.root / "c", venv=options.venv)
        self.cluster = Cluster(self.place)
        self.folder = options.root / "work"
        self.source = options.root / "src"
        self.texts = options.out / "texts"
        self.mps = options.root / "mps"
        self.accounts = accounts(options)
        self._by_account = ("mps_server", '"account"') in options.set and self.policy.with_rad
        self._started: list[subprocess.Popen[bytes]] = []

    def account(self, job: Planned) -> str:
        """Return the account that a job is submitted as."""
        return self.accounts[job.user - 1]

    def slurm_account(self, job: Planned) -> tuple[str, ...]:
        """Return the Slurm account that a job names; none where accounts decide nothing."""
        return (SLURM_ACCOUNT.format(account_of(job.user)),) if self._by_account else ()

    def end_faults(self) -> None:
        """Let the simulated MPS servers of jobs that have faulted end all their clients."""
        for path in (self.folder / "records").glob("*.fault") if self.simulated else ():
            end_server(self.place.run / NODE, self.place.gpus(NODE), int(path.stem))
            path.unlink()

    def server(self, account: str) -> Path:
        """Return the socket of the process that forks an account's trainings."""
        return self.options.root / "server" / account / "socket"

    def up(self, names: Sequence[str]) -> dict[str, Any]:
        """Start everything; return what is known of these workloads."""
        self.cluster.down()  # of a run that was killed here
        shutil.rmtree(self.options.root, ignore_errors=True)
        for folder in (self.folder, self.folder / "records", self.folder / "records" / "loads"):
            folder.mkdir(parents=True)
            folder.chmod(0o1777)
        self.options.root.chmod(0o755)
        for name in SOURCES:
            skip = shutil.ignore_patterns("__pycache__")
            shutil.copytree(CHECKOUT / name, self.source / name, ignore=skip)
        shutil.copy(CHECKOUT / "tests" / "gpu" / "cuda_client.py", self.source / "bench" / "replay" / "job")
        make_accounts(self.accounts)
        servers = {name: self._start_server(name) for name in self.accounts}  # their imports take the longest
        known = self._describe(names)
        self._start_cluster()
        for name, server in servers.items():
            self._wait_for(name, server)
        return known

    def down(self) -> None:
        """End everything."""
        self.cluster.down()
        for process in reversed(self._started):
            process.kill()
            process.wait()

    def _describe(self, names: Sequence[str]) -> dict[str, Any]:
        """Return what is known of workloads, their texts made beforehand or now, by a Python that has torch."""
        self.texts.mkdir(exist_ok=True)
        made = self.texts / "workloads.json"
        if self.options.stand_in:
            return json.loads(made.read_text()) if made.exists() else {}
        argv = [self.options.python, "-m", "replay.workloads", str(self.texts), *names]
        subprocess.run(argv, env=self._python_env(), check=True, timeout=180)
        return json.loads(made.read_text())

    def _python_env(self) -> dict[str, str]:
        path = f"{self.source}/bench:{self.source}"
        return dict(os.environ) | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}

    def _start_server(self, account: str) -> subprocess.Popen[bytes]:
        """Start the process that forks an account's trainings, as that account."""
        user = pwd.getpwnam(account)
        runs = self.server(account).parent
        runs.mkdir(parents=True)
        os.chown(runs, user.pw_uid, user.pw_gid)
        python = sys.executable if self.options.stand_in else self.options.python
        environment = self._python_env() | placeholders() | {"HOME": str(runs), "CUDA_MODULE_LOADING": "LAZY"}
        environment.pop("SLURM_CONF", None)
        log = self._server_log(account).open("wb")
        argv = [python, "-m", "replay.job.server", str(self.server(account))]
        argv += ["--stand-in"] * self.options.stand_in
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
            preexec_fn=with_parent(signal.SIGKILL),
        )
        self._started.append(process)
        return process

    def _server_log(self, account: str) -> Path:
        return self.options.root / f"server.{account}.log"

    def _wait_for(self, account: str, server: subprocess.Popen[bytes]) -> None:
        def ready() -> bool:
            if server.poll() is not None:
                text = self._server_log(account).read_text()
                raise SystemExit(f"the server of {account}'s trainings ended: {text[-2000:]}")
            return self.server(account).is_socket()

        wait_until(f"the server of {account}'s trainings is ready", ready, timeout_s=180, clock=SystemClock())

    def _start_cluster(self) -> None:
        if self.simulated:
            node = NodeSpec(name=NODE, gpu_mib=(SIMULATED_MIB,) * self.options.gpus)
        else:
            readings = NvmlTelemetry().read()[: self.options.gpus]
            if len(readings) < self.options.gpus:
                raise SystemExit(f"{self.options.gpus} GPUs wanted, {len(readings)} here")
            node = real_node(NODE, readings)
            if len(node.gpu_mib) < self.options.gpus:
                in_use = "; ".join(
                    f"GPU {gpu.index}: processes {[one.pid for one in gpu.processes]}" for gpu in readings
                )
                raise SystemExit(
                    f"{self.options.gpus} idle GPUs of one size wanted, {len(node.gpu_mib)} here ({in_use})"
                )
            uuids = [gpu.uuid for gpu in readings]
        node = replace(node, cpus=256, memory_mib=256_000)
        lines = (*rad_toml(self.policy, self.options.estimates), *(f"{k} = {v}" for k, v in self.options.set))
        spec = ClusterSpec(
            nodes=(node,),
            sharing="mps",
            with_rad=self.policy.with_rad,
            slurm_conf=SLURM_CONF,
            scheduler=(f"bf_min_age_reserve={min_age_reserve_s(self.options)}",),
            rad_toml=lines,
            by_memory=False,
            spread_shards=("share_multi_gpu", "true") in self.options.set,
        )
        self.cluster.up(spec)
        if self.policy.with_rad and self.options.estimates in ESTIMATORS:
            self.cluster.set_rad("estimator", json.dumps(self.options.estimates))
        if self._by_account:
            self._believe_accounts()
        if self.policy.mps and not self.simulated:
            for account in self.accounts:
                self._start_mps(account, uuids)

    def _believe_accounts(self) -> None:
        """Let RAD believe the accounts that jobs name, as where Slurm checks them: this Slurm has no slurmdbd."""
        believed = self.place.etc / "slurm.accounts.conf"
        believed.write_text(f"{self.place.slurm_conf.read_text()}\nAccountingStorageEnforce=associations\n")
        own = self.place.etc / f"rad.{NODE}.toml"
        rewrite(own, own.read_text().replace(f'"{self.place.slurm_conf}"', f'"{believed}"'))

    def _start_mps(self, account: str, uuids: Sequence[str]) -> None:
        """Start an account's MPS daemon for each GPU, as a site without RAD would.

        A daemon that several accounts used would serve one of them at a time; servers of several daemons take turns.
        """
        user = pwd.getpwnam(account)
        for index, uuid in enumerate(uuids):
            folder = self.mps / account / str(index)
            folder.mkdir(parents=True)
            os.chown(folder, user.pw_uid, user.pw_gid)
            environment = dict(os.environ) | {
                "CUDA_VISIBLE_DEVICES": uuid,
                "CUDA_MPS_PIPE_DIRECTORY": str(folder),
                "CUDA_MPS_LOG_DIRECTORY": str(folder),
            }
            with (self.options.root / f"mps.{account}.{index}.log").open("wb") as log:
                daemon = subprocess.Popen(
                    ["nvidia-cuda-mps-control", "-f"],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    user=user.pw_uid,
                    group=user.pw_gid,
                    start_new_session=True,
                    preexec_fn=with_parent(signal.SIGTERM),  # so that it stops its servers
                )
            self._started.append(daemon)
            control = folder / "control"
            wait_until("MPS is up", control.exists, timeout_s=15, clock=SystemClock())
