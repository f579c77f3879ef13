#!/usr/bin/env bash
# The compose cluster: a database, slurmdbd, slurmctld with radd, a login node, two nodes with simulated GPUs.
#
# usage: docker/cluster.sh up      build the images, start everything, wait until it is healthy
#        docker/cluster.sh demo    submit the example jobs as alice and show what becomes of them
#        docker/cluster.sh test    up, demo with checks, accounting checks; non-zero if anything differs
#        docker/cluster.sh watch   up, with a Prometheus that scrapes all nodes, at http://localhost:9090; rad top on the login node
#        docker/cluster.sh logs    logs of all services
#        docker/cluster.sh shell   a shell on the login node, as alice
#        docker/cluster.sh down    stop and remove everything, volumes included
#
# TAG=trixie (Slurm 24.11) by default; TAG=bookworm or TAG=sid builds on another Debian.
set -euo pipefail
cd "$(dirname "$0")"
export TAG=${TAG:-trixie}

if [ -z "${DOCKER_HOST:-}" ]; then DOCKER_HOST=$(./engine.sh start); fi
export DOCKER_HOST

if docker compose version >/dev/null 2>&1; then compose=(docker compose); else compose=(docker-compose); fi
compose+=(-p rad -f compose.yml)

up() {
    ./base_image.sh "debian:$TAG-slim"
    "${compose[@]}" build
    "${compose[@]}" up -d
    wait_healthy
}

wait_healthy() {
    local deadline=$((SECONDS + 180)) waiting
    while :; do
        waiting=$(docker ps -a --filter label=com.docker.compose.project=rad --format '{{.Names}} {{.Status}}' |
            grep -v '(healthy)' || true)
        [ -n "$waiting" ] || return 0
        if [ "$SECONDS" -gt "$deadline" ]; then
            printf 'cluster: not healthy after 180 s:\n%s\n' "$waiting" >&2
            "${compose[@]}" logs --tail 30 >&2
            return 1
        fi
        sleep 1 # waits on the health of every service, until the deadline above
    done
}

on_login() { docker exec -i "$("${compose[@]}" ps -q login)" "$@"; }

case ${1:-} in
up) up ;;
demo) on_login bash /usr/src/rad/docker/demo.sh ;;
test)
    "${compose[@]}" down -v -t 1 --remove-orphans # jobs of an earlier cluster would be judged too
    began=$EPOCHSECONDS
    up
    on_login bash /usr/src/rad/docker/demo.sh --check
    ended=$(on_login env SLURM_TIME_FORMAT=%s sacct -a -X -n -P -o End,State,AllocTRES | grep 'COMPLETED.*gres/shard' | sort -n | head -1)
    echo "first shared job finished $((${ended%%|*} - began)) s after the start"
    ;;
watch)
    compose+=(--profile watch)
    up
    on_login rad top --once
    ;;
logs) "${compose[@]}" logs --tail 200 ;;
shell) exec docker exec -it "$("${compose[@]}" ps -q login)" runuser -l alice ;;
down) "${compose[@]}" --profile watch down -v -t 1 --remove-orphans ;;
*)
    sed -n '2,13p' "$0" >&2
    exit 2
    ;;
esac
