#!/bin/sh
# A training that costs no CPU: it holds memory of its simulated GPUs, and sleeps.
#
# usage: hold.sh MIB SECONDS
#
# It sees the GPUs that CUDA_VISIBLE_DEVICES names, by UUID or index (0 under MPS: the daemon's own), and holds so much on each of them whatever its
# cap is. Each run leaves two lines in $RAD_LOAD: when it started and when it had done its work, in ticks since boot.
[ -z "$CUDA_MPS_PIPE_DIRECTORY" ] || CUDA_VISIBLE_DEVICES=${CUDA_MPS_PIPE_DIRECTORY##*/}
[ "$RAD_CONFINED" != 1 ] || CUDA_VISIBLE_DEVICES=$RAD_GPUS
if [ "$3" = child ]; then token=$4; else token=${CUDA_VISIBLE_DEVICES%%,*}; fi
mib=$1 seconds=$2 kind=$3 folder=$RAD_SIMULATED_GPUS/$SLURMD_NODENAME
rest=${CUDA_VISIBLE_DEVICES#"$token"}
read -r line <"/proc/$$/stat"
# shellcheck disable=SC2086 # into words
set -- ${line##*) } # field 3 of proc(5) comes first, so the start time, field 22, is $20
ticks=${20}
[ "$kind" = child ] || echo "start $SLURM_JOB_NAME $ticks $SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0}" >>"$RAD_LOAD"
while read -r index uuid; do [ "$index" = "$token" ] && token=$uuid; done <"$folder/names"
file=$folder/processes/$$.json
printf '{"pid":%d,"started_ticks":%d,"uuid":"%s","memory_bytes":%d,"smact":0.2}' \
    $$ "$ticks" "$token" $((mib * 1048576)) >"$file.new" && mv "$file.new" "$file"
if [ "$kind" = child ]; then
    sleep "$seconds"
    exit
fi
IFS=,
for other in $rest; do sh "$0" "$mib" "$seconds" child "$other" & done
sleep "$seconds" || exit # killed: what it did is lost
wait
rm -f "$file"
read -r line </proc/uptime
echo "end $SLURM_JOB_NAME $line $SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0}" >>"$RAD_LOAD"
