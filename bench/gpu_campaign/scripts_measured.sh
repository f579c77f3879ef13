#!/usr/bin/env bash
# On a machine with a GPU: runs each script of bench/traced_scripts.py for real for SECONDS (60), samples what nvidia-smi
# shows for it, and prints peak MiB beside the script; compare with what bench/traced_scripts.py prints.
# Usage: bench/gpu_campaign/scripts_measured.sh ENVIRONMENT/bin/python [SECONDS]. Not run yet.
set -u
python=$(realpath -s "$1") seconds=${2:-60} here=$(realpath "$(dirname "$0")/..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
sed -n '/^SCRIPTS = (/,/^)/s/^    "\(.*\)",$/\1/p' "$here/traced_scripts.py" | while read -r name words; do
    # shellcheck disable=SC2086 # words are meant to be several
    timeout "$seconds" "$python" "$here/scripts/$name" $words >log 2>&1 </dev/null &
    job=$! peak=0
    while kill -0 "$job" 2>/dev/null; do
        now=$(nvidia-smi --query-compute-apps=used_memory --format=csv,noheader,nounits | sort -n | tail -1)
        [ "${now:-0}" -gt "$peak" ] && peak=$now
        sleep 0.2
    done
    echo "$name $words: $peak MiB"
done
