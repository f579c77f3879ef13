"""slurmctld takes over Lua that `rad install` renews: it looks at the age of job_submit.lua alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs

pytestmark = pytest.mark.cluster

SUBMIT = ("-H", "--gpus=1", "--comment=rad:memory=5G", "--wrap", "true")
RENEWED = "a renewed release said this"


@pytest.fixture
def shim(cluster: Cluster) -> Iterator[Path]:
    path = cluster.place.etc / "rad" / "rad.lua"
    before = path.read_text()
    yield path
    path.write_text(before)
    cluster.reset_breaker()


def test_renewed_lua_counts_once_job_submit_lua_is_newer(jobs: Jobs, cluster: Cluster, shim: Path) -> None:
    assert RENEWED not in jobs.submit(*SUBMIT).messages
    before = shim.read_text()
    shim.write_text(
        before.replace(
            "for _, text in ipairs(reply.say", f"say('{RENEWED}')\n  for _, text in ipairs(reply.say"
        )
    )
    assert shim.read_text() != before
    assert RENEWED not in jobs.submit(*SUBMIT).messages, "the module alone is not looked at"
    cluster.reset_breaker()  # sets the time of job_submit.lua, as rad install does
    assert RENEWED in jobs.submit(*SUBMIT).messages
