#!/bin/bash
# Prepare a folder for replays on real GPUs, on a machine that need not have one; what is there already is kept:
#
#   bench/replay/prepare.sh FOLDER TRACE.csv...
#
# FOLDER/debs gets Slurm's packages of Debian 13, for hosts without Slurm (RAD_DEBS); FOLDER/RUNS the models' texts, and each
# trace with the memory that was measured in the place of the published figure. Then each workload is checked: what trains, and
# what RAD books. Needs root for the packages (lab/chroot.sh), and some 6 GB in .rad for torch and the models' libraries.
set -euo pipefail
folder=$(mkdir -p "${1:?usage: prepare.sh FOLDER TRACE.csv...}" && cd "$1" && pwd) traces=()
shift
for trace in "$@"; do traces+=("$(realpath "$trace")"); done
[ ${#traces[@]} -gt 0 ] || { echo "prepare: name at least one trace" >&2; exit 2; }
cd "$(dirname "$0")/../.."
libraries=$PWD/.rad/replay-libraries runs=$folder/RUNS
mkdir -p "$folder/debs" "$runs/texts"

if ! ls "$folder"/debs/slurmctld_*.deb >/dev/null 2>&1; then
    # shellcheck disable=SC2016 # the inner shell expands it
    lab/chroot.sh trixie bash -c 'apt-get update -qq && rm -rf /srv/debs && mkdir -m 777 /srv/debs && cd /srv/debs && apt-get download -q "$@" >&2' _ \
        slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libmunge2 libhwloc15 libnuma1 libjson-c5 liblua5.1-0 lua-posix \
        lua-socket libdbus-1-3 libyaml-0-2
    cp "${RAD_CHROOTS:-/var/tmp/rad-chroots}"/trixie/srv/debs/*.deb "$folder/debs"
fi
if [ ! -e "$libraries/complete" ]; then # the releases of the GPU host: RAD_TORCH_RELEASE, RAD_TORCHVISION_RELEASE
    python3 -m venv "$libraries"
    "$libraries/bin/pip" install -q --disable-pip-version-check "torch==${RAD_TORCH_RELEASE:-2.11.0}" "torchvision==${RAD_TORCHVISION_RELEASE:-0.26.0}" \
        timm transformers torchinfo click
    touch "$libraries/complete"
fi
[ -x .rad/venv/bin/python ] || make setup

export PYTHONPATH=$PWD/bench:$PWD
mapfile -t workloads < <(cut -d, -f3 "${traces[@]}" | grep -vx workload | sort -u)
"$libraries/bin/python" -m replay.workloads "$runs/texts" "${workloads[@]}"
for trace in "${traces[@]}"; do .rad/venv/bin/python -m replay.as_measured "$trace" "$runs/$(basename "$trace")"; done
exec .rad/venv/bin/python -m replay.check "$runs/texts" "$runs"/*.csv --gpus 2 --compress 120
