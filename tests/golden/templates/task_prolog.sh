#!/bin/sh
# TaskProlog, as the user: prints what the task's environment gets. A non-zero status cancels the task, so only the
# program's own word (a job that was requeued meanwhile) counts, not a missing installation.
echo "unset SLURM_SCRIPT_CONTEXT" # Slurm sets it for tasks wherever there is a TaskProlog; a task finds what it finds without
said=$(/opt/rad/venv/bin/python -I -m prolog.task_prolog --config "/etc/rad/rad.toml" --or-fail)
status=$?
case "$status $said" in
"0 "* | "1 print RAD: "*)
    printf '%s\n' "$said"
    exit "$status"
    ;;
esac
# The program did not end its work (no time on a crowded machine, an upgrade at this moment). Without its GPU's name the
# task would train on another's: the file that the Prolog left says it in TaskProlog's own words.
if [ -e "/run/rad/ended/$SLURM_JOB_ID" ]; then
    echo "print RAD: the job did not start here: slurmd started this run without a Prolog; resubmit it"
    exit 1
fi
word="/run/rad/placed/$SLURM_JOB_ID"
[ -r "$word" ] || exit 0
while IFS= read -r line; do
    case $line in
    "export "*) printf '%s\n' "$line" ;;
    "refused "*)
        printf 'print RAD: the job did not start here: %s\n' "${line#refused }"
        exit 1
        ;;
    esac
done <"$word"
exit 0
