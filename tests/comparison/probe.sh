#!/bin/sh
# Notes what a program of a job sees: usage: probe.sh FILE. What such programs count is printed.
note=$1.${SLURM_PROCID:-batch}.$$
env -0 >"$note.env"
{ umask; ulimit -a; pwd; id; } >"$note.host"
: >"$1.noted"
count=0
old=$IFS
IFS=,
for _ in ${CUDA_VISIBLE_DEVICES:-}; do
    count=$((count + 1))
done
IFS=$old
echo "task ${SLURM_PROCID:-batch} of ${SLURM_NTASKS:-?}: $count GPUs"
