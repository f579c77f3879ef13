#!/bin/sh
# Prolog of slurmd. A non-zero status would drain the node, so an internal error is only written to slurmd's log.
# Whatever becomes of the hook, this run has a Prolog (slurm_plugin/core/ledger/ended_runs.py).
rm -f "{{run}}/ended/$SLURM_JOB_ID"
# First on a busy processor: a hook needs 0.15 s of it, and among 50 other processes would wait 20 s for that. The outer
# limit is for an interpreter that does not even start (its files on a dead server); the hook keeps a stricter one itself.
hook() { nice -n -20 timeout -s KILL "$1" {{python}} -I -m prolog --config "{{config}}"; }
hook 30
status=$?
# Killed (the kernel's OOM killer, say): once more, since each of its steps may be repeated.
[ "$status" -lt 128 ] || { hook 10; status=$?; }
[ "$status" = 0 ] || echo "rad prolog: status $status" >&2
# Killed both times: nothing keeps the job from others' GPUs, and this shell does not know whether rad.toml manages it.
# So it leaves word for TaskProlog, which does and lets the job run again.
word="{{run}}/placed/$SLURM_JOB_ID"
if [ "$status" -ge 128 ] && [ -n "$SLURM_JOB_GPUS" ] && [ ! -e "$word" ]; then
    umask 022
    mkdir -p "${word%/*}"
    printf '# {"boot_id": "%s", "created_s": %s, "allocation": null}\nunplaced\n' \
        "$(cat /proc/sys/kernel/random/boot_id)" "$(cut -d " " -f 1 /proc/uptime)" >"$word"
fi
exit 0
