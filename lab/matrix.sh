#!/usr/bin/env bash
# The cluster tier on every Slurm that Debian carries: 22.05 (bookworm), 24.11 (trixie), 26.05 (sid).
#
# usage: lab/matrix.sh [SUITE...] [-- PYTEST ARGUMENTS]
#
# Each suite runs on a bare Debian of its own (lab/chroot.sh), built once and cached; on sid with pyslurm too. A table
# of what passed and how long it took is printed at the end; the status is non-zero if anything failed anywhere.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

suites=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do suites+=("$1"); shift; done
[ $# -gt 0 ] && shift
[ ${#suites[@]} -gt 0 ] || suites=(bookworm trixie sid)

status=0
table=$(printf '%-10s %-10s %-42s %8s %8s' suite slurm result setup_s tests_s)
passed=0 failed=0
for suite in "${suites[@]}"; do
    log=$(mktemp)
    began=$SECONDS
    setup='make setup'
    [ "$suite" = sid ] && setup='make setup && lab/build_pyslurm.sh .rad/venv'
    if "$here/chroot.sh" "$suite" bash -c "$setup && slurmctld -V" >"$log" 2>&1; then
        version=$(grep -oE '[0-9]+\.[0-9]+\.[0-9]+' "$log" | tail -1)
        ready=$SECONDS
        "$here/chroot.sh" "$suite" make test-cluster ARGS="$*" >"$log" 2>&1 || status=1
        result=$(grep -E '(passed|failed|error)' "$log" | tail -1 | sed -E 's/=+ ?//g; s/ in [0-9.]+s.*//')
        if [[ $result =~ ([0-9]+)\ passed ]]; then passed=$((passed + BASH_REMATCH[1])); fi
        if [[ $result =~ ([0-9]+)\ failed ]]; then failed=$((failed + BASH_REMATCH[1])); fi
        grep -E '^(FAILED|ERROR)' "$log" || true
        table+=$(printf '\n%-10s %-10s %-42s %8d %8d' "$suite" "$version" "${result:-no result}" $((ready - began)) $((SECONDS - ready)))
    else
        status=1 failed=$((failed + 1))
        table+=$(printf '\n%-10s %-10s %-42s' "$suite" - "set-up failed")
    fi
    [ "$status" = 0 ] || tail -60 "$log"
    rm -f "$log"
done
printf '\n%s\n\n%d passed, %d failed\n' "$table" "$passed" "$failed"
exit "$status"
