"""radd and rad-monitor work in a sandbox like that of their systemd units, as far as it can be had without systemd.

Here: file systems read-only but run, state and log, a /tmp of their own, no new privileges, the units' capabilities,
and for radd its user and no executable memory. Not here: the filters of system calls and address families.
"""

from __future__ import annotations

import re
import shutil

import pytest
from faults.trial import Trials, nothing

from lab.cluster import Cluster
from slurm_plugin.admin.own_files.templates import templates_folder
from slurm_plugin.monitor.window import window_path

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

NO_NEW_EXECUTABLE_MEMORY = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(65, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
"""PR_SET_MDWE of prctl(2), Linux 6.3; an older kernel refuses, and nothing is the worse for it."""


def unit(name: str) -> dict[str, str]:
    lines = (templates_folder() / "systemd" / f"{name}.service").read_text().splitlines()
    return dict(line.partition("=")[::2] for line in lines if "=" in line and not line.startswith("#"))


def boxed(cluster: Cluster, argv: list[str], *, keep: list[str]) -> list[str]:
    """Return the command line of a daemon in its sandbox.

    Args:
        cluster: Its folders stay writable where the unit says so.
        argv: setpriv's further options, and the daemon.
        keep: Capabilities that may be had.
    """
    place = cluster.place
    open_ones = " ".join(str(path) for path in (place.run, place.root / "state", place.log))
    script = (
        f"for folder in {open_ones}; do mount --bind $folder $folder; done; "
        "mount --bind / /; mount -o remount,bind,ro /; mount -t tmpfs tmpfs /tmp; "
        'exec setpriv --no-new-privs "$@"'
    )
    bounds = ",".join(["-all", *(f"+{one}" for one in keep)])
    outer = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sandbox"]
    return [*outer, f"--bounding-set={bounds}", "--inh-caps=-all", *argv]


def sandboxed(cluster: Cluster) -> None:
    place = cluster.place
    python, tool = str(place.venv / "bin" / "python"), place.venv / "bin"
    cluster.daemons.stop("radd")
    assert unit("radd")["CapabilityBoundingSet"] == ""
    radd = ["--reuid=slurm", "--regid=slurm", "--clear-groups", python, "-c", NO_NEW_EXECUTABLE_MEMORY]
    argv = boxed(cluster, [*radd, str(tool / "radd"), "--config", str(place.etc / "rad.toml")], keep=[])
    cluster.daemons.start("radd", argv, env=cluster.env())
    cluster.wait("radd answers from its sandbox", cluster.radd_answers, 20)
    cluster.reset_breaker()
    cluster.daemons.stop("monitor-n0")
    caps = re.findall(r"CAP_(\w+)", unit("rad-monitor")["CapabilityBoundingSet"])
    monitor = [str(tool / "rad-monitor"), "--config", str(place.etc / "rad.n0.toml")]
    argv = boxed(cluster, monitor, keep=[name.lower() for name in caps])
    cluster.daemons.start("monitor-n0", argv, env=cluster.env())
    window = window_path(place.run / "n0")
    window.unlink(missing_ok=True)
    cluster.wait("rad-monitor writes from its sandbox", window.exists, 20)


def test_the_daemons_work_in_their_sandbox(trials: Trials) -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv here")
    trials.check("no fault; radd and rad-monitor in a sandbox", nothing, before=sandboxed)
