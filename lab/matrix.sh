#!/usr/bin/env bash
# The cluster tier on every Slurm that Debian carries: 22.05 (bookworm), 24.11 (trixie), 26.05 (sid).
#
# usage: lab/matrix.sh [SUITE...] [-- PYTEST ARGUMENTS]
#
# Each suite runs on a bare Debian of its own (lab/chroot.sh), built once and cached; on sid with pyslurm too. A table
# of what passed and how long it took is printed at the end, after the end of the log of each suite that failed; the
# status is non-zero if anything failed anywhere. No suite may take longer than LIMIT_S, set-up included. TIER=test-faults
# runs that tier in the place of the cluster tests; its rows stay in CHROOT/srv/rad/.rad/faults.jsonl. QUICK=1 leaves out
# the tests marked any_slurm, as CI does: 22.05 on the host runs them there, and a release runs all of them everywhere.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
limit_s=${LIMIT_S:-1500}
tier=${TIER:-test-cluster}

suites=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do suites+=("$1"); shift; done
[ $# -gt 0 ] && shift
[ ${#suites[@]} -gt 0 ] || suites=(bookworm trixie sid)

log=$(mktemp)
trap 'rm -f "$log"' EXIT
table=$(printf '%-10s %-10s %-42s %8s %8s' suite slurm result setup_s tests_s)
passed=0 failed=0

on() { # on SUITE COMMAND...: run it there, its output in the log
    local suite=$1 code=0
    shift
    timeout --kill-after=60 $((began + limit_s > SECONDS ? began + limit_s - SECONDS : 1)) "$here/chroot.sh" "$suite" "$@" >"$log" 2>&1 || code=$?
    case $code in 124 | 137) echo "not done after $limit_s s" >>"$log" ;; esac
    return "$code"
}

add_row() { table+=$(printf '\n%-10s %-10s %-42s %8s %8s' "$@"); }

number_of() { grep -oE "[0-9]+ $1" <<<"$result" | cut -d' ' -f1 || echo 0; }

for suite in "${suites[@]}"; do
    began=$SECONDS
    setup='make setup && make release' # on this Debian's own Python
    [ "$suite" = sid ] && setup="$setup && lab/build_pyslurm.sh .rad/venv"
    if ! on "$suite" bash -c "$setup && slurmctld -V"; then
        tail -40 "$log"
        failed=$((failed + 1))
        add_row "$suite" - 'set-up failed' $((SECONDS - began)) -
        continue
    fi
    version=$(grep -oE '[0-9]+\.[0-9]+\.[0-9]+' "$log" | tail -1)
    ready=$SECONDS code=0
    on "$suite" make "$tier" ARGS="${QUICK:+-m 'cluster and not any_slurm'} $*" || code=$?
    result=$(grep -E '^=+ .*(passed|failed|error).* in [0-9.]+s' "$log" | tail -1 | sed -E 's/=+ ?//g; s/ in [0-9.]+s.*//' || true)
    bad=$(($(number_of failed) + $(number_of error)))
    passed=$((passed + $(number_of passed)))
    if [ "$code" != 0 ]; then
        grep -E '^(FAILED|ERROR|E  ) ' "$log" | cut -c-300 | tail -60 || true # Slurm's logs follow them, and are long
        tail -150 "$log"
        [ "$bad" != 0 ] || bad=1
    fi
    failed=$((failed + bad))
    add_row "$suite" "$version" "${result:-no result, status $code}" $((ready - began)) $((SECONDS - ready))
done
printf '\n%s\n\n%d passed, %d failed\n' "$table" "$passed" "$failed"
[ "$failed" = 0 ]
