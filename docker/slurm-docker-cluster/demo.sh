#!/usr/bin/env bash
# Two small trainings and one that outgrows its booking, as upstream's user ood; non-zero if anything differs.
#
# usage: docker exec slurmctld bash /usr/src/rad/docker/slurm-docker-cluster/demo.sh
set -euo pipefail
folder=/data/rad-examples # upstream's volume for jobs: the same on controller and nodes
rm -rf $folder
cp -r /usr/src/rad/examples $folder
chown -R ood: $folder
cd $folder
since=$(date +%FT%T) # upstream keeps the database but not the job ids: an earlier cluster may have had the same ones

submit() {
    HOME=$folder PATH=/opt/rad/venv/bin:$PATH gosu ood sbatch --parsable --partition=rad "$@"
}
first=$(submit share_resnet18.sh)
second=$(submit share_encoder.sh)
grows=$(submit underestimated.sh)
all=$first,$second,$grows

deadline=$((SECONDS + 150)) shared=no
while [ -n "$(squeue -h -j "$all" -t PENDING,RUNNING,COMPLETING -o %i)" ]; do
    running=$(squeue -h -j "$first,$second" -t RUNNING -o %i | wc -l)
    [ "$running" = 2 ] && shared=yes
    [ "$SECONDS" -lt "$deadline" ] || { squeue -j "$all" >&2; echo "demo: still unfinished after 150 s" >&2; exit 1; }
    sleep 1 # waits until no job is left, until the deadline above
done

record() { sacct -j "$1" -S "$since" -X -n -P --duplicates -o "$2"; }
deadline=$((SECONDS + 30))
until [ "$(record "$all" State | grep -c '^COMPLETED$')" = 3 ] || [ "$SECONDS" -gt "$deadline" ]; do
    sleep 1 # slurmdbd hears of a job's end a little later
done
sacct -j "$all" -S "$since" -X --duplicates -o JobID,JobName,NodeList,AllocTRES%50,State,AdminComment%60
card_of() { grep -ohE 'GPU-[0-9a-f-]+' "$folder"/*-"$1".out | tail -1; }
for job in $first $second $grows; do echo "$job on $(card_of "$job")"; done

faults=0
expect() { # expect WHAT JOB FIELD PATTERN
    record "$2" "$3" | grep -Eq "$4" || { echo "demo: $1: $(record "$2" "$3" | tr '\n' ' ')" >&2; faults=$((faults + 1)); }
}
for job in $first $second $grows; do expect "job $job completed" "$job" State '^COMPLETED$'; done
expect "the first took a part of a GPU" "$first" AllocTRES 'gres/shard=[1-3]?[0-9]($|,)'
expect "the second took a part of a GPU" "$second" AllocTRES 'gres/shard=[1-3]?[0-9]($|,)'
expect "the rerun had a GPU of its own" "$grows" AllocTRES 'gres/(shard=80|gpu=1)'
expect "the recovery is reported" "$grows" AdminComment 'rad: (recovered|ended .* recovered)'
[ $shared = yes ] || { echo "demo: the two small jobs never ran at once" >&2; faults=$((faults + 1)); }
[ "$(card_of "$first")" = "$(card_of "$second")" ] || { echo "demo: they were on different GPUs" >&2; faults=$((faults + 1)); }
if [ "$faults" = 0 ]; then echo "1 passed, 0 failed"; else echo "0 passed, $faults failed"; exit 1; fi
