#!/usr/bin/env bash
# A Docker engine for this checkout alone, for machines where none runs (root, Debian or Ubuntu).
#
# usage: docker/engine.sh start   prints the DOCKER_HOST to use; does nothing where an engine answers already
#        docker/engine.sh stop    stops the one that start began
set -euo pipefail

home=$(cd "$(dirname "$0")/.." && pwd)/.rad/docker
socket=/var/tmp/rad-docker-$(echo -n "$home" | sha256sum | cut -c1-8).sock # short: a socket path has 107 characters

case ${1:-} in
start)
    if docker info >/dev/null 2>&1; then
        echo "${DOCKER_HOST:-unix:///var/run/docker.sock}"
        exit 0
    fi
    if DOCKER_HOST=unix://$socket docker info >/dev/null 2>&1; then
        echo "unix://$socket"
        exit 0
    fi
    [ "$(id -u)" = 0 ] || { echo "engine: no Docker engine answers and starting one needs root" >&2; exit 1; }
    if [ ! -x /usr/sbin/dockerd ] || ! command -v docker-compose >/dev/null; then
        apt-get update -qq >/dev/null
        DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends \
            docker.io docker-compose iptables >/dev/null
    fi
    mkdir -p "$home/data" "$home/exec"
    setsid nohup /usr/sbin/dockerd --data-root "$home/data" --exec-root "$home/exec" --pidfile "$home/dockerd.pid" \
        -H "unix://$socket" >"$home/dockerd.log" 2>&1 </dev/null &
    for _ in $(seq 1 100); do
        DOCKER_HOST=unix://$socket docker info >/dev/null 2>&1 && { echo "unix://$socket"; exit 0; }
        sleep 0.2 # waits on the condition above, 20 s at most
    done
    tail -3 "$home/dockerd.log" >&2
    exit 1
    ;;
stop)
    [ -f "$home/dockerd.pid" ] && kill "$(cat "$home/dockerd.pid")" && rm -f "$socket"
    ;;
*)
    sed -n '2,6p' "$0" >&2
    exit 2
    ;;
esac
