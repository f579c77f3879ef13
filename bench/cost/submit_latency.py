"""Measure what the shim and radd add to one submission: Lua, socket, decision and back, as slurmctld waits for it.

.rad/venv/bin/python bench/cost/submit_latency.py [--lua lua5.1] [--count 5000]

The same Lua code that slurmctld loads runs in a Lua of its own, against a radd of its own. Three kinds of jobs: one
with a model's profile in its comment, one without a word about memory, and one with radd stopped.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpumemnet.profile.build import profile_with_warnings
from gpumemnet.training import TrainingSetup

ROOT = Path(__file__).resolve().parents[2]
SUMMARY = ROOT / "examples" / "models" / "resnet18_torchinfo.txt"
WARM_UP = 500
CONFIG = """
default_partition = "gpu"
[paths]
socket = "{folder}/radd.sock"
state = "{folder}/state"
key = "{folder}/key"
[partition.gpu]
collocate = true
gpu_memory_mib = 144000
"""
PROGRAM = """
local folder, path, comment, count = arg[1], arg[2], arg[3], tonumber(arg[4])
package.path = folder .. "/?.lua;" .. package.path
package.preload["rad_settings"] = function() return { socket = path } end
local function nothing(...) return string.format(...) end
slurm = { SUCCESS = 0, ERROR = -1, log_info = nothing, log_user = nothing }
local rad, now_s = require("rad"), require("socket").gettime
local script = "#!/bin/bash\\n#SBATCH --gpus=1\\n" .. string.rep("python train.py\\n", 50)
if comment ~= "" then script = script:gsub("\\n", "\\n#RAD model=model.txt batch_size=64\\n", 1) end
for n = 1, count do
  local job = { user_id = 1000, tres_per_job = "gres:gpu:1", comment = comment, script = script,
    environment = { SLURM_GPUS = "1" } }
  local start_s = now_s()
  rad.submit(job, {}, 1000)
  print(string.format("%.9f %s", now_s() - start_s, job.gres or "unchanged"))
end
"""


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lua", default="lua5.1")
    parser.add_argument("--count", type=int, default=5000)
    options = parser.parse_args()
    profile, _ = profile_with_warnings(str(SUMMARY), TrainingSetup(batch_size=64))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "rad.toml").write_text(CONFIG.format(folder=folder))
        (folder / "key").write_bytes(bytes(32))
        (folder / "key").chmod(0o600)
        (folder / "program.lua").write_text(PROGRAM)
        radd = _start_radd(folder)
        print(
            f"{options.lua}, {options.count} submissions each{'p50 ms':>12}{'p99 ms':>10}{'max ms':>10}   ends as"
        )
        _row("model's profile in the comment", options, folder, f"mine rad.profile:{profile.to_text()}")
        _row("not a word about memory", options, folder, "")
        radd.send_signal(signal.SIGSTOP)
        _row("radd hung (the breaker opens)", options, folder, "")
        radd.send_signal(signal.SIGCONT)
        radd.terminate()
        radd.wait()
        _row("radd dead", options, folder, "")


def _start_radd(folder: Path) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "slurm_plugin.radd", "--config", str(folder / "rad.toml")]
    with (folder / "log").open("wb") as log:
        radd = subprocess.Popen(argv, stdout=log, stderr=log, cwd=ROOT)
    for _ in range(200):
        with socket.socket(socket.AF_UNIX) as connection:
            if connection.connect_ex(str(folder / "radd.sock")) == 0:
                return radd
        time.sleep(0.05)
    raise SystemExit((folder / "log").read_text())


def _row(label: str, options: argparse.Namespace, folder: Path, comment: str) -> None:
    argv = [
        options.lua,
        str(folder / "program.lua"),
        str(ROOT / "slurm_plugin" / "lua"),
        str(folder / "radd.sock"),
    ]
    count = WARM_UP + options.count
    text = subprocess.run([*argv, comment, str(count)], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in text.splitlines()]
    times_ms = sorted(1000 * float(row[0]) for row in rows[0 if "hung" in label else WARM_UP :])
    at = {share: times_ms[int(share * (len(times_ms) - 1))] for share in (0.5, 0.99, 1.0)}
    ends = json.dumps(sorted({row[1] for row in rows[WARM_UP:]}))
    print(f"{label:<34}{at[0.5]:>12.3f}{at[0.99]:>10.3f}{at[1.0]:>10.1f}   {ends}")


if __name__ == "__main__":
    main()
