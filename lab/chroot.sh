#!/usr/bin/env bash
# Run a command on a bare Debian of its own: a debootstrapped root, cached, in namespaces of its own.
#
# usage: lab/chroot.sh SUITE COMMAND...     e.g. lab/chroot.sh trixie make test-cluster
#        lab/chroot.sh SUITE --remove
#
# The command runs in /srv/rad, a copy of this checkout as it stands (tracked files and new ones that git does not
# ignore). The root holds what debootstrap's minbase holds plus git, make and python3, as the README asks for; all
# else is the project's own set-up. Processes end with the command: they live in a PID namespace.
set -euo pipefail

suite=${1:?usage: lab/chroot.sh SUITE COMMAND...}
shift
checkout=$(cd "$(dirname "$0")/.." && pwd)
root=${RAD_CHROOTS:-/var/tmp/rad-chroots}/$suite
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}

[ "$(id -u)" = 0 ] || { echo "chroot: building and entering a root needs root" >&2; exit 1; }
mkdir -p "$(dirname "$root")"
exec 9>"$root.lock" # until the last process of the command has ended
flock -n 9 || { echo "chroot: another command runs in $root" >&2; exit 1; }
if [ "${1:-}" = --remove ]; then
    rm -rf --one-file-system "$root"
    exit 0
fi

if [ ! -e "$root/.complete" ]; then
    command -v debootstrap >/dev/null || {
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap
    } >/dev/null
    rm -rf --one-file-system "$root"
    mkdir -p "$root"
    echo "chroot: building $suite in $root" >&2
    debootstrap --variant=minbase --include=ca-certificates,git,make,python3 "$suite" "$root" "$mirror" \
        >"$root.log" 2>&1 || { tail -5 "$root.log" >&2; exit 1; }
    # A mirror that lags behind carries an expired Release file for testing and unstable.
    case $suite in sid | forky) echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/99valid" ;; esac
    touch "$root/.complete"
fi

# The machine's names, certificates and local packages are the root's too.
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
echo "127.0.0.1 localhost $(hostname)" >"$root/etc/hosts"
mkdir -p "$root/etc/ssl/certs" "$root/srv/rad"
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"

# The copy keeps its own .rad between runs; files that left the checkout leave the copy.
git config --global --get-all safe.directory 2>/dev/null | grep -qxF "$checkout" ||
    export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0="$checkout"
find "$root/srv/rad" -mindepth 1 -maxdepth 1 ! -name .rad -exec rm -rf {} +
git -C "$checkout" ls-files -z --cached --others --exclude-standard |
    (cd "$checkout" && xargs -0 -r stat --printf '%n\0' 2>/dev/null | tar --null -T - -c) | tar -C "$root/srv/rad" -x
git -C "$root/srv/rad" init -q 2>/dev/null
git -C "$root/srv/rad" add -A
git -C "$root/srv/rad" -c user.name=rad -c user.email=rad@localhost commit -q -m 'The checkout as it stands' || true # no change

# shellcheck disable=SC2016 # the inner shell expands it
exec unshare --mount --pid --uts --ipc --fork --kill-child --propagation private bash -c '
    root=$1; shift
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount -t tmpfs -o mode=755 tmpfs "$root/dev"
    for node in null zero full random urandom tty; do
        touch "$root/dev/$node"; mount --bind "/dev/$node" "$root/dev/$node"
    done
    mkdir "$root/dev/pts" "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"; ln -s pts/ptmx "$root/dev/ptmx"
    ln -s /proc/self/fd "$root/dev/fd"
    mount -t tmpfs tmpfs "$root/dev/shm"; mount -t tmpfs tmpfs "$root/run"; mkdir -p "$root/run/lock"
    pass=$(env | grep -E "^(https?_proxy|no_proxy|HTTPS?_PROXY|NO_PROXY|PIP_[A-Z_]*|RAD_FAULTS[A-Z_]*|RAD_TIME_FACTOR|CI|TERM)=" || true)
    mapfile -t variables <<<"$pass"
    exec chroot "$root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
        PIP_CERT=/etc/ssl/certs/ca-certificates.crt ${pass:+"${variables[@]}"} \
        bash -c "cd /srv/rad && exec \"\$@\"" _ "$@"
' _ "$root" "$@"
