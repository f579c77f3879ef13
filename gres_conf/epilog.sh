#!/bin/sh
# Epilog of slurmd. A non-zero status would drain the node, so an internal error is only written to slurmd's log.
# First on a busy processor: a hook needs 0.15 s of it, and among 50 other processes would wait 20 s for that. The outer
# limit is for an interpreter that does not even start (its files on a dead server); the hook keeps a stricter one itself.
hook() { nice -n -20 timeout -s KILL "$1" {{python}} -I -m epilog --config "{{config}}"; }
hook 30
status=$?
# Killed (the kernel's OOM killer, say): once more, since each of its steps may be repeated.
[ "$status" -lt 128 ] || { hook 10; status=$?; }
[ "$status" = 0 ] || echo "rad epilog: status $status" >&2
exit 0
