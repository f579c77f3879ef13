#!/bin/bash
# Prove on a real GPU what only a real GPU can prove, in one go of some ten minutes. Run it as root.
#
#   tests/gpu/run_all.sh RESULTS_FOLDER [FOLDER_OF_DEBS] [pytest options]
#
# It needs a Python that has torch, torchvision, pytest, click and nvidia-ml-py (RAD_TORCH_PYTHON, else python3), and
# writes one JSON file for each test, and pytest's own output, into RESULTS_FOLDER. The tests with a real Slurm need
# slurmctld, slurmd and munged: installed, or as .deb files, which are unpacked by hand where nothing can be installed.
# RAD_GPU_TESTS names the files to run instead of all.
set -u
cd "$(dirname "$0")/../.." || exit 1
results=$(mkdir -p "$1" && cd "$1" && pwd); export debs=${2:-}; shift; shift
export RAD_TORCH_PYTHON=${RAD_TORCH_PYTHON:-$(command -v python3)} RAD_GPU_RESULTS=$results PYTHONUNBUFFERED=1
venv=${RAD_VENV:-/opt/rad/venv}

# shellcheck source=/dev/null
. tests/gpu/host.sh
prepare || exit 1
{
    nvidia-smi --query-gpu=name,uuid,driver_version,memory.total --format=csv,noheader
    "$RAD_TORCH_PYTHON" -c 'import torch; print("torch", torch.__version__, "CUDA", torch.version.cuda)'
    slurmctld -V 2>&1; uname -r; nproc
} | tee "$results/machine.txt"
all=$(printf 'tests/gpu/test_%s.py ' activity window mps_real shared_server_real guard_real hooks calibrate slurm_chain demo two_gpus sharing overhead)
# shellcheck disable=SC2086  # a list of files
"$venv/bin/python" -m pytest -m gpu -v -rA --durations=0 -p no:cacheprovider ${RAD_GPU_TESTS:-$all} "$@" 2>&1 |
    tee "$results/pytest.txt"
exit "${PIPESTATUS[0]}"
