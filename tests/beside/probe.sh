#!/bin/sh
# Notes what a program of a job sees: usage: probe.sh FILE. What such programs count is printed.
note=$1.${SLURM_PROCID:-batch}.$$
env -0 >"$note.env"
{ umask; ulimit -a; pwd; id; } >"$note.host"
: >"$1.noted"
count=0 form=unset
if [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
    form=integers
    old=$IFS
    IFS=,
    for one in $CUDA_VISIBLE_DEVICES; do
        count=$((count + 1))
        case $one in *[!0-9]*) form=other ;; esac
    done
    IFS=$old
fi
echo "task ${SLURM_PROCID:-batch} of ${SLURM_NTASKS:-?}: $count GPUs, $form"
