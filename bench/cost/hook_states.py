"""Measure Prolog and Epilog of an ordinary job in several checkouts, in turns: CPU time and page faults.

    python bench/cost/hook_states.py --count 40 /tmp/before .

Each checkout's hooks run from its own files, as root, on two simulated GPUs without rad-monitor or Slurm; all processes
of a hook are counted. On a machine with other work the least CPU time says most.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from hooks import Cost, at, cost_of

JOB_ID = "1000007"

PREPARE = """
import dataclasses, sys
from pathlib import Path
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.core.units import GIB
from slurm_plugin.core.comments.signed_comment import signed_booking
from slurm_plugin.monitor.gpus.simulated import GpuSpec, SimulatedGpus

folder, key = Path(sys.argv[1]), bytes(32)
(folder / "key").write_bytes(key)
(folder / "key").chmod(0o600)
specs = [GpuSpec(uuid=f"GPU-{i}", index=i, name="simulated", memory_total_bytes=10 * GIB) for i in range(2)]
SimulatedGpus.create(folder / "gpus", specs)
booking = Booking(kind="shared", memory_bytes=4 * GIB, estimate_bytes=3 * GIB, profile_key="ab12")
if "partitions" in {field.name for field in dataclasses.fields(Booking)}:  # older checkouts know of none
    from slurm_plugin.core.booking.verification import partition_mark

    booking = dataclasses.replace(booking, shards=4, partitions=(partition_mark("gpu"),))
print(signed_booking(booking, user_id=0, key=key))
"""

RAD_TOML = """
[paths]
run = "{folder}/run"
state = "{folder}/state"
key = "{folder}/key"
log = "{folder}/log"
slurm_conf = "{folder}/no-slurm.conf"
[telemetry]
source = "simulated"
simulated_folder = "{folder}/gpus"
[partition.gpu]
collocate = true
shards_per_gpu = 10
"""


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkouts", nargs="+", type=Path)
    parser.add_argument("--count", type=int, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rad-hook-states-") as scratch:
        nodes = {
            root: made_node(root.resolve(), Path(scratch, str(number)))
            for number, root in enumerate(options.checkouts)
        }
        costs: dict[tuple[str, Path], list[Cost]] = {}
        for number in range(options.count + 1):
            for root, (folder, env) in nodes.items():
                for hook in ("prolog", "epilog"):
                    argv = [sys.executable, "-P", "-S", "-s", "-m", hook, "--config", f"{folder}/rad.toml"]
                    cost = cost_of(argv, env, uid=0)
                    recorded = any(path.name == JOB_ID for path in (folder / "run").glob("*/*"))
                    assert recorded == (hook == "prolog"), f"{root}: this {hook} did not do its work"
                    if number:  # the first loads from disk
                        costs.setdefault((hook, root), []).append(cost)
    print(f"{options.count} jobs each, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.0f}")
    print(f"{'':<40}{'CPU least ms':>14}{'first quarter':>15}{'page faults':>13}")
    for (hook, root), rows in sorted(costs.items()):
        cpu_ms = sorted(1000 * row.cpu_s for row in rows)
        faults = at(sorted(row.page_faults for row in rows), 0.5)
        print(f"{hook} {root!s:<33}{cpu_ms[0]:>14.1f}{at(cpu_ms, 0.25):>15.1f}{faults:>13}")


def made_node(root: Path, folder: Path) -> tuple[Path, dict[str, str]]:
    """Make a node for a checkout's hooks; return its folder and the hooks' environment."""
    folder.mkdir()
    (folder / "rad.toml").write_text(RAD_TOML.format(folder=folder))
    env = {"PYTHONPATH": str(root)}
    comment = subprocess.run(
        [sys.executable, "-P", "-c", PREPARE, str(folder)],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    return folder, env | {
        "SLURM_JOB_ID": JOB_ID,
        "SLURM_JOB_UID": "0",
        "SLURM_JOB_GID": "0",
        "SLURM_JOB_USER": "root",
        "SLURM_JOB_PARTITION": "gpu",
        "SLURM_JOB_GPUS": "0",
        "SLURM_JOB_WORK_DIR": str(folder),
        "SLURM_JOB_COMMENT": comment,
        "SLURM_JOB_EXIT_CODE": "0",
        "SLURMD_NODENAME": "n0",
    }


if __name__ == "__main__":
    main()
