"""What sbatch says to each example job script, and what its request becomes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from golden_texts import Golden
from paths import CHECKOUT

from slurm_plugin.core.config.load import parse_config
from slurm_plugin.estimate import Estimator
from slurm_plugin.login import cli_filter
from slurm_plugin.radd.submission.submit import Submission

SCRIPTS = sorted((CHECKOUT / "examples").rglob("*.sh"))
CONFIG = parse_config(
    {
        "default_partition": "gpu",
        "partition": {"gpu": {"collocate": True, "gpu_memory_mib": 40360, "shards_per_gpu": 39}},
    },
    origin="rad.toml",
)
FIELDS = {"gpus": "tres_per_job", "gpus-per-node": "gres", "gres": "gres"}
"""Option of sbatch -> the job_desc field that Slurm puts it into."""


def request_of(script: Path) -> dict[str, str]:
    """Return the GPU request of a script as job_submit sees it."""
    for line in script.read_text().splitlines():
        name, _, value = line.removeprefix("#SBATCH --").partition("=")
        if line.startswith("#SBATCH") and name in FIELDS:
            return {FIELDS[name]: f"gres:{value if name == 'gres' else f'gpu:{value}'}"}
    return {}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_messages_of_a_job_script(script: Path, tmp_path: Path, golden: Golden) -> None:
    folder = tmp_path / "examples"
    shutil.copytree(script.parent, folder)
    options = {"command": "sbatch", "script": script.name}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        seen = cli_filter.answer(options, CONFIG, folder=folder, user_id=1000)
    made = Submission(config=CONFIG, key=bytes(32), estimator=Estimator(), whole_as_gpu={})
    request = {"v": 1, "user_id": 1000, "script": script.read_text(), "script_name": script.name}
    fields = {**request, **request_of(script), "comment": seen["set"].get("comment", "")}
    reply = made.answer(made.parsed(fields))
    fields = {
        name: value for name, value in reply["set"].items() if name != "comment"
    }  # it ends in a signature
    blanked = [name for name, value in reply["env"].items() if not value]
    assert len(blanked) == len(reply["env"])
    lines = [
        f"$ sbatch {script.name}",
        *(line.replace(str(folder), "FOLDER") for line in (*seen["say"], *reply["say"])),
        *([] if reply["refuse"] is None else [f"refused: {reply['refuse']}"]),
        "",
        *(f"{name} = {value}".rstrip() for name, value in sorted(fields.items())),
        *([f"blanked in the environment: {' '.join(sorted(blanked))}"] if blanked else []),
        f"radd's log: {reply['log']}",
    ]
    golden(f"job_scripts/{script.stem}.txt", "\n".join(lines))
