#!/bin/sh
# TaskProlog, as the user: prints what the task's environment gets. A non-zero status cancels the task, so only the
# program's own word (a job that was put back meanwhile) counts, not a missing installation.
[ -x {{python}} ] || exit 0
echo "unset SLURM_SCRIPT_CONTEXT" # Slurm sets it for tasks wherever there is a TaskProlog; a task finds what it finds without
exec {{python}} -I -m prolog.task_prolog --config "{{config}}"
