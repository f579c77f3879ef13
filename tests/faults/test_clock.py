"""The node's clock jumps an hour ahead, then an hour back, as hooks and rad-monitor see it."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults.trial import Trials

from lab.cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

JUMPED = Path(__file__).resolve().parent / "programs" / "jumped.py"
HOUR_S = 3600
BETWEEN_S = 7.0


def own_clock(cluster: Cluster) -> None:
    """Give hooks and monitor of the node a clock of their own, right for now."""
    place = cluster.place
    wrapper, offset = place.etc / "jumped.py", place.etc / "offset"
    wrapper.write_text(JUMPED.read_text())
    offset.write_text("0")
    for hook in ("prolog", "epilog"):
        path = place.etc / f"{hook}.sh"
        text = path.read_text()
        assert f"-m {hook}" in text, text
        path.write_text(text.replace(f"-m {hook}", f"{wrapper} {offset} {hook}"))
    cluster.daemons.stop("monitor-n0")
    python = str(place.venv / "bin" / "python")
    module = "slurm_plugin.monitor.daemon"
    argv = [python, "-I", str(wrapper), str(offset), module, "--config", str(place.etc / "rad.n0.toml")]
    cluster.daemons.start("monitor-n0", argv, env=cluster.env())


def jumps(cluster: Cluster) -> None:
    offset = cluster.place.etc / "offset"
    for seconds in (HOUR_S, -HOUR_S, 0):
        offset.write_text(str(seconds))
        cluster.clock.sleep(BETWEEN_S)


def test_the_clock_jumps_an_hour_ahead_and_back(trials: Trials) -> None:
    trials.check("the node's clock jumps by +1 h and -1 h", jumps, before=own_clock)
