#!/usr/bin/env bash
# Clone giovtorres/slurm-docker-cluster at the commit that this overlay was written for, and check that it is that one.
#
# usage: docker/slurm-docker-cluster/get.sh [SOURCE]   prints the folder; SOURCE: another place to clone from
set -euo pipefail

commit=cf399c5e140ae7dda1b1ed7ccfe0d000bb65af6d
source=${1:-https://github.com/giovtorres/slurm-docker-cluster}
folder=$(cd "$(dirname "$0")/../.." && pwd)/.rad/slurm-docker-cluster

[ -d "$folder/.git" ] || git clone -q --no-checkout "$source" "$folder"
git -C "$folder" cat-file -e "$commit^{commit}" 2>/dev/null || git -C "$folder" fetch -q origin "$commit"
git -C "$folder" -c advice.detachedHead=false checkout -q "$commit"

found=$(git -C "$folder" rev-parse HEAD)
[ "$found" = "$commit" ] || { echo "get.sh: $folder is at $found, not at $commit" >&2; exit 1; }
changed=$(git -C "$folder" status --porcelain --untracked-files=no)
[ -z "$changed" ] || { printf 'get.sh: %s differs from upstream:\n%s\n' "$folder" "$changed" >&2; exit 1; }
echo "$folder"
