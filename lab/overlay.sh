#!/usr/bin/env bash
# Run a command on a copy of this machine that is thrown away: an overlay over its root, in namespaces of its own.
#
# usage: lab/overlay.sh COMMAND...     e.g. lab/overlay.sh apt install -y ./dist/rad-slurm_*_all.deb
#
# What the command installs or writes lies in memory and is gone with it, but for this checkout, where it runs, which is
# the machine's own. Its processes end with it: they live in a PID namespace.
set -euo pipefail

[ $# -gt 0 ] || { echo "usage: lab/overlay.sh COMMAND..." >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "overlay: a root of its own needs root" >&2; exit 1; }
checkout=$(cd "$(dirname "$0")/.." && pwd)

# shellcheck disable=SC2016 # the inner shell expands it
exec unshare --mount --pid --uts --ipc --fork --kill-child --propagation private bash -ec '
    checkout=$1; shift
    mount -t tmpfs tmpfs /mnt
    mkdir /mnt/upper /mnt/work /mnt/root
    mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/root
    mount -t proc proc /mnt/root/proc
    for folder in sys dev; do mount --rbind "/$folder" "/mnt/root/$folder"; done
    mount -t tmpfs -o mode=755 tmpfs /mnt/root/run
    mkdir /mnt/root/run/lock
    mount --bind "$checkout" "/mnt/root$checkout"
    exec chroot /mnt/root bash -c "cd \"\$0\" && exec \"\$@\"" "$checkout" "$@"
' _ "$checkout" "$@"
