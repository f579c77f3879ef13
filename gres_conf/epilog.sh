#!/bin/sh
# Epilog of slurmd. A non-zero status would drain the node, so a fault of ours is only said in slurmd's log.
# First on a busy processor: a hook needs 0.15 s of it, and among 50 other processes would wait 20 s for that. The outer
# limit is for an interpreter that does not even start (its files on a dead server); the hook keeps a stricter one itself.
nice -n -20 timeout -s KILL 30 {{python}} -I -m epilog --config "{{config}}" || echo "rad epilog: status $?" >&2
exit 0
