#!/bin/sh
# Prolog of slurmd. A non-zero status would drain the node, so a fault of ours is only said in slurmd's log.
/opt/rad/venv/bin/python -I -m prolog --config "/etc/rad/rad.toml" || echo "rad prolog: status $?" >&2
exit 0
