"""What all users ran is what a new one books, once rad.toml names what `rad learn` printed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from gpumemnet.profile.build import profile_with_warnings
from gpumemnet.profile.record import ModelProfile
from gpumemnet.training import TrainingSetup
from lab.cluster import Cluster
from lab.jobs import Jobs, SubmitResult
from slurm_plugin.core.config.load import load_config
from slurm_plugin.core.files.append_log import PRIVATE, append_line
from slurm_plugin.core.history.models import Model, models_path, to_line
from slurm_plugin.core.history.runs import Run, peaks_path, record
from slurm_plugin.core.history.site_quantiles import LEAST_MODELS
from slurm_plugin.estimate import Estimator

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.any_slurm(
        "rad learn reads RAD's own records; recovery and accounting of each release have tests of their own"
    ),
]

TEXT = "models/resnet50_torchsummary.txt"
BATCH = 40
"""Of no other test, whose peak would be remembered."""
UNMANAGED = range(30_000, 30_005)
SCORE = 2.0
"""All of them needed twice the shipped margin."""


@pytest.fixture
def learning(cluster: Cluster, jobs: Jobs) -> Iterator[Cluster]:
    """A site whose users ran forty models of which the test's own user knows none; their runs are taken away again."""
    config = load_config(cluster.place.etc / "rad.toml")
    state = cluster.place.root / "state"
    kept = (peaks_path(state), models_path(state))
    before = {path: path.read_bytes() if path.exists() else b"" for path in kept}
    profile, _ = profile_with_warnings(str(jobs.folder / TEXT), TrainingSetup(batch_size=BATCH))
    now_s = cluster.clock.now_s()
    for number in range(2 * LEAST_MODELS):
        other = profile._replace(weights=profile.weights + 1 + number)
        user_id = UNMANAGED[number % len(UNMANAGED)]
        needed = Estimator.from_config(config).of_profile(other.to_text())
        assert needed is not None
        run = Run(
            user_id=user_id,
            profile_key=other.key,
            peak_bytes=int(needed.estimate_bytes + SCORE * (needed.upper_bytes - needed.estimate_bytes)),
            start_s=now_s - 600,
            time_s=now_s,
            partition=config.default_partition,
            outcome="ok",
        )
        record(peaks_path(state), run)
        append_line(models_path(state), to_line(_model(other, user_id)), mode=PRIVATE)
    with cluster.changed_rad_toml():
        yield cluster
    for path, content in before.items():
        path.write_bytes(content)


def _model(profile: ModelProfile, user_id: int) -> Model:
    return Model(
        profile=profile.key,
        user=user_id,
        time_s=0.0,
        name="strange",
        family=profile.family.value,
        parameters=profile.parameters,
        batch_size=profile.batch_size,
        optimizer=profile.optimizer.value,
        precision=profile.precision.value,
        text=profile.to_text(),
    )


def submit(jobs: Jobs) -> SubmitResult:
    comment = f"--comment=rad:model={TEXT},batch_size={BATCH}"
    job = jobs.submit("--hold", "--gpus=1", comment, "--wrap", "true")
    assert job.job_id is not None, job.messages
    return job


def estimate_answer(jobs: Jobs) -> dict[str, Any]:
    place = jobs.cluster.place
    words = [f"{place.venv}/bin/rad-estimate", f"--config={place.etc}/rad.toml", "--json", TEXT]
    shell = ["runuser", "-u", "nobody", "--", "sh", "-c", 'cd "$0" && exec "$@"', str(jobs.folder)]
    reported: dict[str, Any] = json.loads(jobs.cluster.slurm(*shell, *words, f"--batch-size={BATCH}"))
    return reported


def test_runs_of_others_recalibrate_a_new_model(jobs: Jobs, learning: Cluster) -> None:
    shipped = submit(jobs).messages
    before = estimate_answer(jobs)
    place = learning.place
    file = place.root / "quantiles.json"
    file.write_text(
        learning.slurm(f"{place.venv}/bin/rad", "learn", "--json", f"--config={place.etc}/rad.toml")
    )
    learning.set_rad("site_quantiles", f'"{file}"')
    found = [submit(jobs).messages]
    assert found[0] != shipped
    after = estimate_answer(jobs)
    assert after["sbatch"]["says"][0] in found[-1] and before["sbatch"]["says"][0] in shipped
    # Runs of earlier tests on this cluster count, too.
    said = r"re-calibrated by 4\d runs of this site \(4\d models, \d users\): "
    assert re.match(said, after["sbatch"]["learned"])
    margins = [reported["upper_mib"] - reported["estimate_mib"] for reported in (before, after)]
    assert margins[1] == pytest.approx(SCORE * margins[0], rel=0.01)
