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
results=$(mkdir -p "$1" && cd "$1" && pwd); debs=${2:-}; shift; shift
export RAD_TORCH_PYTHON=${RAD_TORCH_PYTHON:-$(command -v python3)} RAD_GPU_RESULTS=$results PYTHONUNBUFFERED=1
venv=${RAD_VENV:-/opt/rad/venv}

unpack() { # what the packages' own scripts would do, as far as a cluster without systemd needs it
    local root; root=$(mktemp -d)
    for deb in "$debs"/*.deb; do dpkg -x "$deb" "$root"; done
    cp -a "$root"/usr/bin/. /usr/bin/ && cp -a "$root"/usr/sbin/. /usr/sbin/
    # Only what is missing: the machine's own libraries stay.
    for lib in "$root"/usr/lib "$root"/lib; do [ ! -d "$lib" ] || cp -an "$lib"/. /usr/lib/; done; mkdir -p /usr/share/lua && cp -an "$root"/usr/share/lua/. /usr/share/lua/
    for program in slurmctld slurmd slurmstepd; do ln -sfn "$program-wlm" "/usr/sbin/$program"; done
    ldconfig
    for user in slurm munge; do id "$user" >/dev/null 2>&1 || useradd -r -M -s /usr/sbin/nologin "$user"; done
}

install() { # a virtual environment of its own, as on a node; torch and the tests' tools are lent to it
    "$RAD_TORCH_PYTHON" -m venv --without-pip "$venv"
    local site; site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    "$RAD_TORCH_PYTHON" - "$site" <<'PY'
import pathlib, sysconfig, sys
pathlib.Path(sys.argv[1], "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
PY
    local source; source=$(mktemp -d)
    cp -a setup.cfg pyproject.toml README.md LICENSE slurm_plugin gpumemnet prolog epilog gres_conf "$source"
    "$venv/bin/python" -m pip install -q --no-index --no-deps --no-build-isolation "$source"
}

[ -n "$debs" ] && ! command -v slurmctld >/dev/null && unpack
[ -x "$venv/bin/rad" ] || install || exit 1
# Slurm starts hooks without PATH and library path, so the driver must be where the system looks.
for tool in nvidia-smi nvidia-cuda-mps-control nvidia-cuda-mps-server; do
    found=$(command -v "$tool" || ls /usr/local/nvidia/bin/"$tool" 2>/dev/null) || continue
    [ -e "/usr/bin/$tool" ] || ln -s "$found" "/usr/bin/$tool"
done
if ! ldconfig -p | grep -q libcuda.so.1 && [ -d /usr/local/nvidia/lib64 ]; then
    echo /usr/local/nvidia/lib64 >/etc/ld.so.conf.d/nvidia.conf && ldconfig
fi
{
    nvidia-smi --query-gpu=name,uuid,driver_version,memory.total --format=csv,noheader
    "$RAD_TORCH_PYTHON" -c 'import torch; print("torch", torch.__version__, "CUDA", torch.version.cuda)'
    slurmctld -V 2>&1; uname -r; nproc
} | tee "$results/machine.txt"
all=$(printf 'tests/gpu/test_%s.py ' activity window mps_real guard_real hooks calibrate slurm_chain demo two_gpus sharing overhead)
# shellcheck disable=SC2086  # a list of files
"$venv/bin/python" -m pytest -m gpu -v -rA --durations=0 -p no:cacheprovider ${RAD_GPU_TESTS:-$all} "$@" 2>&1 |
    tee "$results/pytest.txt"
exit "${PIPESTATUS[0]}"
