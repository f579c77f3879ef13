#!/usr/bin/env bash
# Make sure that a Debian base image is here: pulled from a registry, or built by debootstrap under the same name.
#
# usage: docker/base_image.sh debian:trixie-slim
#
# A site without a registry can so build the ordinary Dockerfile unchanged. The built image trusts the host's
# certificates, because such sites often sit behind a proxy of their own.
set -euo pipefail

image=${1:?usage: docker/base_image.sh debian:SUITE-slim}
suite=${image#debian:}
suite=${suite%-slim}

docker image inspect "$image" >/dev/null 2>&1 && exit 0
echo "base image: $image is not here, asking the registry"
timeout 60 docker pull -q "$image" 2>/dev/null && exit 0

echo "base image: no registry reached, building $image by debootstrap"
[ "$(id -u)" = 0 ] || { echo "base image: debootstrap needs root; run as root or pull $image by hand" >&2; exit 1; }
command -v debootstrap >/dev/null || {
    apt-get update -qq >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap >/dev/null
}
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
root=$(mktemp -d /var/tmp/rad-base.XXXXXX)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase --include=ca-certificates "$suite" "$root" "$mirror" >"$root.log" 2>&1 || {
    tail -5 "$root.log" >&2
    exit 1
}
rm -f "$root.log" "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*_*
# A mirror that lags behind carries an expired Release file for testing and unstable.
case "$suite" in sid | forky) echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/99valid" ;; esac
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/host-certificates.crt"
tar -C "$root" --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*' \
    --exclude='./proc/*' --exclude='./sys/*' -c . |
    docker import --change 'CMD ["bash"]' --change 'ENV PIP_CERT=/etc/ssl/host-certificates.crt' - "$image" >/dev/null
echo "base image: $image built"
