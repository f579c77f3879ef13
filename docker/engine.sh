#!/usr/bin/env bash
# A Docker engine for this checkout alone, for machines where none runs (root, Debian or Ubuntu).
#
# usage: docker/engine.sh start   prints the DOCKER_HOST to use; does nothing where an engine answers already
#        docker/engine.sh stop    stops the one that start began, with its containers; keeps its images
set -euo pipefail

home=$(cd "$(dirname "$0")/.." && pwd)/.rad/docker
socket=/var/tmp/rad-docker-$(echo -n "$home" | sha256sum | cut -c1-8).sock # short: a socket path has 107 characters

running() { # whether dockerd of the pid file runs; a reused pid is not taken for it
    [ -f "$home/dockerd.pid" ] && tr '\0' ' ' 2>/dev/null <"/proc/$(cat "$home/dockerd.pid")/cmdline" | grep -qF "$home/data"
}

start() {
    if docker info >/dev/null 2>&1; then
        echo "${DOCKER_HOST:-unix:///var/run/docker.sock}"
        return
    fi
    if DOCKER_HOST=unix://$socket docker info >/dev/null 2>&1; then
        echo "unix://$socket"
        return
    fi
    [ "$(id -u)" = 0 ] || { echo "engine: no Docker engine answers and starting one needs root" >&2; return 1; }
    if [ ! -x /usr/sbin/dockerd ] || ! command -v docker-compose >/dev/null || ! command -v iptables >/dev/null; then
        apt-get update -qq >/dev/null
        DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends \
            docker.io docker-compose iptables >/dev/null
    fi
    mkdir -p "$home/data" "$home/exec"
    rm -f "$socket"
    if [ ! -e /sys/class/net/docker0 ]; then iptables -S FORWARD | head -1 >"$home/forward"; fi
    setsid nohup /usr/sbin/dockerd --data-root "$home/data" --exec-root "$home/exec" --pidfile "$home/dockerd.pid" \
        -H "unix://$socket" >"$home/dockerd.log" 2>&1 </dev/null &
    for _ in $(seq 1 150); do
        DOCKER_HOST=unix://$socket docker info >/dev/null 2>&1 && { echo "unix://$socket"; return; }
        sleep 0.2 # waits on the condition above, 30 s at most
    done
    tail -3 "$home/dockerd.log" >&2
    return 1
}

stop() {
    if running; then
        local pid
        pid=$(cat "$home/dockerd.pid")
        export DOCKER_HOST=unix://$socket
        timeout 60 docker ps -q | xargs -r timeout 60 docker rm -f >/dev/null || true
        timeout 60 docker network prune -f >/dev/null || true
        kill "$pid"
        for _ in $(seq 1 100); do
            running || break
            sleep 0.2 # waits on the end of dockerd, 20 s at most
        done
        ! running || kill -9 "$pid"
    fi
    rm -f "$socket" "$home/dockerd.pid"
    if [ -f "$home/forward" ]; then remove_network; fi
}

remove_network() { # the bridge and the rules that dockerd leaves behind, where there were none before
    local table
    ip link delete docker0 2>/dev/null || true
    for table in nat filter; do
        iptables -t "$table" -S | grep -E '^-A .*(DOCKER|docker0)' | sed 's/^-A/-D/' |
            while read -ra rule; do iptables -t "$table" "${rule[@]}"; done
        iptables -t "$table" -S | sed -n 's/^-N \(DOCKER.*\)/\1/p' | while read -r chain; do
            iptables -t "$table" -F "$chain" && iptables -t "$table" -X "$chain"
        done
    done
    read -ra policy <"$home/forward" && iptables "${policy[@]}"
    rm -f "$home/forward"
}

case ${1:-} in
start) start ;;
stop) stop ;;
*)
    sed -n '2,5p' "$0" >&2
    exit 2
    ;;
esac
