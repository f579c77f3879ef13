"""Try one site in the namespaces that __main__.py made: nothing outside of them changes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path += [str(CHECKOUT / "tests"), str(CHECKOUT)]

from sites.catalogue import HEAD, SITES, Site  # noqa: E402

from lab.config import NEW_CLUSTER  # noqa: E402
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus  # noqa: E402
from slurm_plugin.monitor.gpus.simulated_gpus import make_gpus  # noqa: E402
from slurm_plugin.slurm.files.conf_lines import expand  # noqa: E402
from slurm_plugin.slurm.files.installed import installed_version  # noqa: E402
from slurm_plugin.slurm.files.trial import start_loopback  # noqa: E402
from slurm_plugin.slurm.versions import written  # noqa: E402

VENV = Path(sys.prefix)
ETC, RAD = Path("/etc/slurm"), Path("/etc/rad")
GPU_MIB = 40330
NODES = ("head", "db", "n1", "n2", "c1", *(f"rack{r}n0{n}" for r in (1, 2) for n in (1, 2)))


def sh(command: str, *, check: bool = True) -> str:
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def own_machine(site: Site) -> None:
    """Lay empty folders over those of this machine, with devices for the GPUs and names for the nodes."""
    sh("mkdir -p /tmp/over && mount -t tmpfs none /tmp/over")
    for name in ("etc", "var", "run", "opt", "dev"):
        over = f"/tmp/over/{name}"
        sh(f"mkdir -p {over}.up {over}.work")
        if name in ("run", "dev"):
            continue
        sh(f"mount -t overlay overlay -o lowerdir=/{name},upperdir={over}.up,workdir={over}.work /{name}")
    sh(
        "mkdir -p /tmp/over/dev && cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /tmp/over/dev/"
    )
    sh(
        "cp -a /dev/fd /dev/stdin /dev/stdout /dev/stderr /tmp/over/dev/; mkdir -p /tmp/over/dev/shm",
        check=False,
    )
    sh("mount --bind /tmp/over/dev /dev && mount -t tmpfs none /run && chmod 1777 /dev/shm")
    socket.sethostname("head")
    start_loopback()
    Path("/etc/hosts").write_text(
        "127.0.0.1 localhost " + " ".join(NODES) + "\n198.51.100.9 standby\n"
    )  # without power
    Path("/etc/systemd/system").mkdir(parents=True, exist_ok=True)
    for folder in (
        "/etc/slurm",
        "/etc/rad",
        "/var/spool/slurm",
        "/var/log/slurm",
        "/var/log/rad",
        "/var/lib/rad",
    ):
        sh(f"rm -rf {folder} && mkdir -p {folder}")
    sh("mkdir -p /var/spool/slurm/ctld /run/rad /opt/site /var/spool/slurm/n1 /run/munge /run/key")
    sh("chown -R slurm /var/spool/slurm/ctld /var/log/slurm /var/log/rad /var/lib/rad; chown slurm /run/rad")
    for name in ("suspend", "resume", "on", "off"):
        Path("/opt/site", name).write_text("#!/bin/sh\nexit 0\n")
        Path("/opt/site", name).chmod(0o755)
    for line in re.findall(r"Files?=(\S+)", site.gres):
        for device in filter(None, (each for part in line.split(",/") for each in expand(part))):
            path = Path("/", device.removeprefix("/"))
            path.parent.mkdir(exist_ok=True)
            if not path.exists():
                number = int(re.sub(r"\D", "", path.name) or 0)
                os.mknod(path, 0o666 | 0o020000, os.makedev(240, number))
    sh(
        "head -c 128 /dev/urandom >/run/key/munge && chmod 600 /run/key/munge && chown -R munge /run/key /run/munge"
    )
    options = (
        "--key-file=/run/key/munge --seed-file=/run/key/seed --pid-file=/run/key/pid --log-file=/run/key/log"
    )
    sh(f"setpriv --reuid=munge --clear-groups munged {options}")


def files_of(site: Site) -> dict[str, str]:
    version = installed_version() or (22, 5, 0)
    plugin = "disabled" if version >= (23, 11, 0) else "cgroup/v1"
    texts = {
        "slurm.conf": HEAD + site.conf,
        "gres.conf": site.gres,
        "cgroup.conf": f"CgroupPlugin={plugin}\n",
    }
    return texts | site.files


def write(site: Site) -> dict[str, bytes]:
    for name, text in files_of(site).items():
        path = ETC / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(
            (text.replace("\n", "\r\n") if site.dos and name.endswith(".conf") else text).encode()
        )
        if text.startswith("#!"):
            path.chmod(0o755)
    return {name: (ETC / name).read_bytes() for name in files_of(site)}


def rad(*words: str) -> tuple[int, str]:
    done = subprocess.run([f"{VENV}/bin/rad", *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


class Daemons:
    """The daemons of a site that runs."""

    def __init__(self) -> None:
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *argv: str, user: str = "root") -> None:
        self.stop(name)
        log = open(f"/run/{name}.log", "ab")  # noqa: SIM115 - the daemon's
        as_user = () if user == "root" else ("setpriv", f"--reuid={user}", "--clear-groups")
        self.running[name] = subprocess.Popen(
            [*as_user, *argv], stdout=log, stderr=log, start_new_session=True
        )

    def stop(self, name: str) -> None:
        if process := self.running.pop(name, None):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()

    def slurmctld(self) -> None:
        self.start("slurmctld", "slurmctld", "-D")
        wait("slurmctld answers", lambda: "UP" in sh("scontrol ping", check=False), self)


def wait(what: str, done: Callable[[], bool], daemons: Daemons | None = None, limit_s: float = 60) -> None:
    end = time.monotonic() + limit_s
    while not done():
        ended = [
            name for name, each in (daemons.running if daemons else {}).items() if each.poll() is not None
        ]
        if ended or time.monotonic() > end:
            logs = "; ".join(sh(f"tail -n 3 /run/{name}.log", check=False) for name in ended)
            raise RuntimeError(
                f"{what}: not so; ended: {ended} {logs} {sh('sinfo -NR -o %E 2>&1 | tail -1', check=False)}"
            )
        time.sleep(0.2)


def shared_job(site: Site) -> str:
    kind = f"{site.kind}:" if site.kind else ""
    options = f"-p {site.partition} -w {site.node} --gres=gpu:{kind}1 --mem=100 -t 5 --comment=rad:memory=4G"
    said = sh(
        f"cd /var/tmp && setpriv --reuid=nobody --clear-groups sbatch --parsable {options} -o /var/tmp/out-%j "
        "--wrap 'echo kind=$RAD_KIND gpu=$RAD_GPUS'"
    )
    (job,) = re.findall(r"(?m)^\d+$", said)
    wait(
        f"job {job} ended",
        lambda: not sh(f"squeue -h -j {job} -t PD,R,CG,CF", check=False).strip(),
        limit_s=90,
    )
    state = re.findall(r"JobState=(\w+)", sh(f"scontrol show job {job}", check=False))
    reported = (
        "" if "kind=shared" in (out := Path(f"/var/tmp/out-{job}").read_text().strip()) else said.strip()
    )
    return f"{''.join(state).lower()}, {out} {reported}".strip()


def trials(site: Site, before: dict[str, bytes]) -> Iterator[tuple[str, str]]:
    """Yield what the table says of a site."""
    reason = site.reason if (installed_version() or (0, 0, 0)) < site.before else ""
    options = (
        "--partition",
        site.partition,
        "--gpu-memory-mib",
        str(GPU_MIB),
        "--node",
        "n[1-2]",
        "--gpus",
        "4",
    )
    code, said = rad("install", "--edit-slurm", "--mode", "enforce", "--prefix", str(VENV), *options)
    yield "said", said
    now = {name: (ETC / name).read_bytes() for name in before}
    yield "bytes", "same" if now == before else "changed"
    if code:
        left = "\n".join(
            line for line in said.splitlines() if re.match(r"left to you|slurmctld does not|Error", line)
        )
        true = bool(reason) and re.search(reason, said) and now == before and not list(RAD.iterdir())
        yield "verdict", "refused" if true else "wrong"
        yield (
            "why",
            next((line for line in left.splitlines() if re.search(reason or "$^", line)), said[-300:]),
        )
        return
    if reason or now == before:
        yield "verdict", "wrong"
        yield "why", "was not refused"
        return
    if "not tried" in said:
        yield "verdict", "wrong"
        yield "why", re.findall("not tried.*", said)[0]
        return
    toml = RAD / "rad.toml"
    text = toml.read_text().replace('source = "auto"', 'source = "simulated"')
    toml.write_text(text.replace('simulated_folder = ""', 'simulated_folder = "/run/simulated"'))
    lua = ETC / "rad" / "rad_settings.lua"
    lua.write_text(lua.read_text().replace("\n}", f"\n{NEW_CLUSTER}\n}}"))
    SimulatedGpus.create(Path("/run/simulated"), make_gpus("n1", [GPU_MIB << 20] * 4))
    fails: list[str] = []
    daemons, why = Daemons(), "slurmctld starts with the new files; no such node here"
    if site.controller:
        daemons.slurmctld()
    if site.node:
        daemons.start("slurmd", "slurmd", "-D", "-N", site.node)
        daemons.start("radd", f"{VENV}/bin/radd", "--config", str(toml), user="slurm")
        daemons.start("monitor", f"{VENV}/bin/rad-monitor", "--config", str(toml))
        idle = f"sinfo -h -N -n {site.node} -o %T"
        wait(
            f"{site.node} is idle",
            lambda: sh(idle, check=False).split("\n")[0].strip("*~# ") == "idle",
            daemons,
        )
        wait("radd listens", lambda: Path("/run/rad/radd.sock").exists(), daemons)
        _, doctor = rad("doctor")
        fails = [line for line in doctor.splitlines() if line.startswith("FAIL")]
        end = time.monotonic() + 60  # 22.05 with a standby: radd checks again whether there are shards
        while "has just started" in (why := shared_job(site)) and time.monotonic() < end:
            time.sleep(1)
    yield "why", "; ".join([why, *fails])
    for again in (True, True, False):  # slurmctld loses its shards, then the hooks, then PrologFlags
        code, said = rad("uninstall", "--edit-slurm")
        if site.controller and again:
            daemons.slurmctld()
        if site.node and again:
            daemons.start("slurmd", "slurmd", "-D", "-N", site.node)
    for name in list(daemons.running):
        daemons.stop(name)
    now = {name: (ETC / name).read_bytes() if (ETC / name).exists() else b"" for name in before}
    if not site.controller:  # PrologFlags stay until a restarted slurmctld answers
        now["slurm.conf"] = now["slurm.conf"].replace(b"PrologFlags=Alloc,DeferBatch\n", b"")
    yield (
        "bytes",
        "come back" if now == before else f"differ: {[n for n in now if now[n] != before[n]]} {said[-400:]}",
    )
    shared = not site.node or why.startswith("completed, kind=shared gpu=")
    yield "verdict", "understood" if shared and now == before and not fails else "wrong"


def main() -> int:
    """Try the site that is named and print one line."""
    site = next(each for each in SITES if each.name == sys.argv[1])
    row = {"site": site.name, "slurm": written(installed_version() or (0, 0, 0))}
    try:
        own_machine(site)
        row |= dict(trials(site, write(site)))
    except (RuntimeError, OSError) as exc:
        row |= {"verdict": "wrong", "why": str(exc)[-900:]}
    print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
