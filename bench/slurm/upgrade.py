r"""Upgrade Slurm under jobs of RAD, its daemons left running, and print after each step what became of them.

    lab/chroot.sh trixie bash -c 'make setup
        echo "deb http://deb.debian.org/debian sid main" >/etc/apt/sources.list.d/sid.list
        printf "Package: *\nPin: release n=sid\nPin-Priority: 100\n" >/etc/apt/preferences.d/sid
        printf "#!/bin/sh\nexit 101\n" >/usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d; apt-get update
        .rad/venv/bin/python -m bench.slurm.upgrade apt-get install -y -t sid slurmctld slurmd slurm-client \
            slurm-wlm-basic-plugins slurmdbd slurm-wlm-mysql-plugin'

The command, run while jobs run, puts the new release in the place of the old one: use a Debian that may be thrown
away. Each node keeps the old one, by a copy of /usr in a mount namespace, until its turn comes. slurmdbd, slurmctld and
the slurmd of each node are restarted in this order, at last radd and rad-monitor. Two nodes of two simulated GPUs,
slurmdbd. Run as root; three minutes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lab.cluster import Cluster
from lab.jobs import ENDED, Jobs
from lab.place import ClusterSpec, NodeSpec, Place, home_of
from lab.sentinel import Sentinel
from slurm_plugin.core.errors import CommandError
from slurm_plugin.core.process.run import run

CHECKOUT = Path(__file__).resolve().parents[2]
GPU_MIB = (40960, 40960)
NODES = (NodeSpec(name="n0", gpu_mib=GPU_MIB), NodeSpec(name="n1", gpu_mib=GPU_MIB))
UNTIL = "while [ ! -e {name} ]; do sleep 0.2; done; echo limit $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT; "
SHARES = ("--gpus=1", "--comment=rad:memory=12G")
GROWS = (
    "--gpus=1",
    "--comment=rad:model=models/resnet18_cifar_torchsummary.txt,batch_size=128,optimizer=sgd",
)
TRAINS = "python3 fake_train.py --memory 4G --seconds 3"
OVER_AT_ONCE = "python3 fake_train.py --memory 38G --seconds 1"
TOO_MUCH = "python3 fake_train.py --memory 2G,38G --seconds 4"
LIMIT_S = 60.0


class Machines(Cluster):
    """A cluster whose nodes have a copy of the programs that were there when it started."""

    def up(self, spec: ClusterSpec) -> None:
        """Copy /usr for the nodes, and start the cluster."""
        old = self.place.root.with_name("old-usr")
        run(["cp", "-a", "/usr/.", str(old)], timeout_s=300)
        hold = f"mount --bind {old} /usr && exec sleep infinity"
        self.holders = {
            node.name: subprocess.Popen(
                ["unshare", "--mount", "--propagation", "unchanged", "sh", "-c", hold]
            )
            for node in spec.nodes
        }
        time.sleep(1)
        super().up(spec)

    def on(self, node: str, *argv: str) -> list[str]:
        """Return the command that runs another one on a node."""
        return ["nsenter", "-t", str(self.holders[node].pid), "--mount", "--root", "--wd", "--", *argv]

    def start_node(self, node: NodeSpec) -> None:
        """Start the slurmd of one node, there."""
        argv = self.on(node.name, "slurmd", "-D", "-f", str(self.place.slurm_conf), "-N", node.name)
        self.daemons.start(f"slurmd-{node.name}", argv, env=self.env())

    def start_monitor(self, node: NodeSpec) -> None:
        """Start the rad-monitor of one node, there."""
        program = f"{self.place.venv}/bin/rad-monitor"
        argv = self.on(node.name, program, "--config", str(self.place.etc / f"rad.{node.name}.toml"))
        self.daemons.start(f"monitor-{node.name}", argv, env=self.env())

    def upgrade_node(self, node: NodeSpec) -> None:
        """Upgrade a node's programs and restart its slurmd, as a package does."""
        self.daemons.stop(f"slurmd-{node.name}", timeout_s=30)
        run(self.on(node.name, "umount", "--lazy", "/usr"), timeout_s=10)
        self.start_node(node)

    def release_nodes(self) -> None:
        """Let the namespaces go."""
        for each in self.holders.values():
            each.kill()


class UpgradeWalk:
    """One cluster, its jobs, and what was seen of them."""

    def __init__(self, cluster: Machines) -> None:
        """Start the cluster."""
        self.cluster = cluster
        cluster.up(ClusterSpec(nodes=NODES, accounts=True))
        folder = cluster.place.root / "work"
        shutil.copytree(CHECKOUT / "examples", folder)
        folder.chmod(0o1777)
        self.jobs = Jobs(cluster, folder)
        self.names: dict[int, str] = {}

    def submit(self, name: str, *argv: str) -> int:
        """Submit a job and print the answer."""
        answer = self.jobs.submit("-J", name, "-o", f"{name}-%j.out", *argv, user="games")
        print(f"   {name}: job {answer.job_id} {answer.messages.strip()}", flush=True)
        if answer.job_id is not None:
            self.names[answer.job_id] = name
        return answer.job_id or 0

    def share(self, name: str, until: str, then: str = TRAINS) -> int:
        """Submit a job that shares a GPU and works once a file is there."""
        return self.submit(name, *SHARES, "--wrap", UNTIL.format(name=until) + then)

    def allow(self, name: str) -> None:
        """Let the jobs that wait for a file go on."""
        (self.jobs.folder / name).touch()

    def ended(self) -> bool:
        """Return whether every job has ended for good, as far as a requeued one can be known."""
        rows = self.jobs.all_fields()
        return bool(rows) and all(rows.get(job, {}).get("JobState") in ENDED for job in self.names)

    def rad(self, *words: str) -> str:
        """Return what a `rad` command prints, whatever its exit status."""
        argv = (f"{self.cluster.place.venv}/bin/rad", *words)
        try:
            return self.cluster.slurm(*argv, "--config", str(self.cluster.place.etc / "rad.n0.toml"))
        except CommandError as exc:
            return exc.output

    def show(self, step: str) -> None:
        """Print the jobs, the nodes, the ledgers and what `rad doctor` finds."""
        print(f"== {step}", flush=True)
        rows = self.jobs.all_fields()
        for job, name in self.names.items():
            row = rows.get(job, {})
            keys = ("JobState", "Reason", "Restarts", "TresPerNode", "NodeList", "Nice", "AdminComment")
            print(f"   {job} {name}:", *(row.get(key, "-")[:100] for key in keys), flush=True)
        for node in NODES:
            for each in self.cluster.allocations(node.name):
                print(f"   {node.name} ledger: {brief(each)}")
        try:
            print(
                *(f"   {line}" for line in self.cluster.slurm("sinfo", "-N", "-h", "-p", "gpu").splitlines()),
                sep="\n",
            )
        except CommandError as exc:
            print(f"   sinfo: {exc}")
        print(*(f"   doctor: {line}" for line in self.findings()), sep="\n", flush=True)
        status, top = self.rad("status").splitlines(), self.rad("top", "--once").splitlines()
        print(f"   status: {len(status)} lines, top: {len(top)} lines")

    def findings(self) -> Iterator[str]:
        """Yield what `rad doctor` finds wrong."""
        text = self.rad("doctor", "--json")
        try:
            found = json.loads(text)["findings"]
        except ValueError:
            yield text
            return
        for each in found:
            if each["level"] not in ("ok", "unseen") or each["subject"] == "Slurm":
                yield f"{each['level']} {each['subject']}: {each['text']}; {each.get('fix', '')}"


def brief(row: Mapping[str, Any]) -> str:
    """Return an allocation in a few words."""
    return " ".join(
        f"{key}={row[key]}" for key in ("job_id", "restart", "kind", "booked_bytes") if key in row
    )


def main() -> int:
    """Walk through the upgrade."""
    home, _ = home_of(CHECKOUT)
    walk = UpgradeWalk(Machines(Place(root=home / "upgrade", venv=home / "venv")))
    cluster = walk.cluster
    try:
        with Sentinel(cluster, [node.name for node in NODES]) as sentinel:
            _walk(walk, sys.argv[1:])
        print(f"== sentinel: {sentinel.findings}")
        print(cluster.slurm("sacct", "-X", "-n", "-o", "JobID,JobName,State,Restarts,AllocTRES%60"))
        print(cluster.logs(20))
    finally:
        cluster.down()
        cluster.release_nodes()
    return 0


def _walk(walk: UpgradeWalk, upgrade: list[str]) -> None:
    cluster = walk.cluster
    for number in range(4):
        walk.share(f"running{number}", "end")
    walk.submit("alone-running", "--gpus=1", "--wrap", UNTIL.format(name="end") + TRAINS)
    walk.submit("grows-later", *GROWS, "--wrap", UNTIL.format(name="grow") + TOO_MUCH)
    walk.submit("grows-at-once", *GROWS, "--wrap", UNTIL.format(name="at-once") + OVER_AT_ONCE)
    walk.submit("grows-across", *GROWS, "--wrap", UNTIL.format(name="grow-too") + TOO_MUCH)
    walk.submit("grows-now", *GROWS, "--wrap", TOO_MUCH)
    time.sleep(12)  # the last has failed and waits with a whole GPU
    for number in range(3):
        walk.share(f"waiting{number}", "end")
    walk.submit("alone-waiting", "--gpus=1", "--wrap", UNTIL.format(name="end") + TRAINS)
    time.sleep(3)
    walk.show("before")
    print(run(upgrade, timeout_s=300)[-600:], flush=True)
    walk.show("package installed, nothing restarted")
    walk.share("submitted-old-ctld", "end")
    cluster.daemons.stop("slurmdbd", timeout_s=30)
    cluster.daemons.start("slurmdbd", ["slurmdbd", "-D"], env=cluster.env(), user="slurm")
    time.sleep(5)
    walk.show("slurmdbd restarted")
    cluster.daemons.stop("slurmctld", timeout_s=30)
    cluster.start_slurmctld()
    cluster.wait("slurmctld answers", cluster.answers, 60)
    walk.share("submitted-new-ctld", "end")
    walk.submit("alone-new-ctld", "--gpus=1", "--wrap", UNTIL.format(name="end") + TRAINS)
    walk.allow("at-once")  # before the nodes have registered
    time.sleep(8)
    walk.allow("grow")
    time.sleep(10)
    walk.show("slurmctld restarted; two have failed under the old slurmd")
    for node in NODES:
        cluster.upgrade_node(node)
    time.sleep(8)
    walk.allow("grow-too")
    walk.share("submitted-new-slurmd", "end")
    walk.submit("grows-new-slurmd", *GROWS, "--wrap", TOO_MUCH)
    time.sleep(8)
    walk.show("slurmd restarted")
    walk.allow("end")
    began_s = time.monotonic()
    while not walk.ended() and time.monotonic() - began_s < LIMIT_S:
        time.sleep(1)
    time.sleep(3)
    walk.show(f"all ended after {time.monotonic() - began_s:.0f} s")
    cluster.restart_radd()
    for node in NODES:
        cluster.daemons.stop(f"monitor-{node.name}")
        cluster.start_monitor(node)
    time.sleep(3)
    last = walk.share("submitted-last", "end")
    walk.jobs.wait(last)
    walk.show("radd and rad-monitor restarted")
    for path in sorted(walk.jobs.folder.glob("*.out")):
        print(f"   {path.name}: {' | '.join(path.read_text().split(chr(10)))[:160]}")


if __name__ == "__main__":
    sys.exit(main())
