#!/bin/sh
# TaskProlog, as the user: prints what the task's environment gets. A non-zero status cancels the task, so only the
# program's own word (a job that was put back meanwhile) counts, not a missing installation.
[ -x /opt/rad/venv/bin/python ] || exit 0
exec /opt/rad/venv/bin/python -I -m prolog.task_prolog --config "/etc/rad/rad.toml"
