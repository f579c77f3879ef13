#!/usr/bin/env bash
# The examples on the compose cluster, submitted from the login node as alice and bob. `--check` judges the outcome.
set -euo pipefail
check=${1:-}
examples=/usr/src/rad/examples
deadline=$((SECONDS + 240))

as() { # as USER COMMAND... in that user's copy of the examples
    local user=$1
    shift
    runuser -u "$user" -- env HOME="/home/$user" PATH="/opt/rad/venv/bin:$PATH" \
        bash -c 'cd ~/examples && exec "$@"' _ "$@"
}

for user in alice bob; do
    rm -rf "/home/$user/examples"
    cp -r "$examples" "/home/$user/examples"
    chown -R "$user:" "/home/$user/examples"
done
# Only a run of a minute, near its estimate, changes what the next one books.
[ "$check" != --check ] || sed -i 's/--memory 2.2G --seconds 8/--memory 3.4G --seconds 66/' /home/alice/examples/share_resnet18.sh

declare -A jobs
submit() { # submit NAME USER ARGUMENTS...
    local name=$1 user=$2
    shift 2
    echo "$user: sbatch $*"
    jobs[$name]=$(as "$user" sbatch --parsable "$@" 2> >(sed 's/^/    /' >&2))
}

submit small80 alice --partition=gpu80 share_resnet18.sh
submit small80b bob --partition=gpu80 share_resnet18.sh
submit small40 alice --partition=gpu40 share_encoder.sh
submit small40b bob --partition=gpu40 share_encoder.sh
submit grows bob --partition=gpu40 underestimated.sh
submit two alice --partition=gpu80 two_gpus.sh
submit broken bob --partition=gpu80 broken_summary.sh

all=$(IFS=,; echo "${jobs[*]}")
while [ -n "$(squeue -h -j "$all" -t PENDING,RUNNING,COMPLETING -o %i)" ]; do
    printf '\r%s' "$(squeue -h -j "$all" -o %T | sort | uniq -c | tr -s ' \n' ' ')          "
    [ "$SECONDS" -lt "$deadline" ] || { echo "demo: jobs still unfinished after 240 s" >&2; squeue >&2; exit 1; }
    sleep 1 # waits until no job is left, until the deadline above
done
echo
sacct -j "$all" -X --duplicates -o JobID,User,JobName,Partition,NodeList,AllocTRES%45,State,Restarts,AdminComment%60 2>/dev/null ||
    sacct -j "$all" -X --duplicates -o JobID,User,JobName,Partition,NodeList,AllocTRES%45,State,AdminComment%60

[ "$check" = --check ] || exit 0
faults=0
expect() { # expect WHAT JOB FIELD PATTERN: some accounting record of the job matches
    sacct -j "${jobs[$2]}" -X -n -P --duplicates -o "$3" | grep -Eq "$4" || {
        echo "demo: $1: $3 of job ${jobs[$2]} is $(sacct -j "${jobs[$2]}" -X -n -P --duplicates -o "$3" | tr '\n' ' ')" >&2
        faults=$((faults + 1))
    }
}
for name in "${!jobs[@]}"; do expect "$name completed" "$name" State '^COMPLETED$'; done
expect "shards are accounted" small80 AllocTRES 'gres/shard=[0-9]+'
expect "a small job took a part of a GPU" small80 AllocTRES 'gres/shard=[1-3]?[0-9]($|,)'
expect "the OOM run is in the accounts" grows State '^(FAILED|REQUEUED|NODE_FAIL|CANCELLED)'
expect "the rerun had a GPU of its own" grows AllocTRES 'gres/(shard=40|gpu=1)'
expect "the recovery is reported" grows AdminComment 'rad: (recovered|ended .* recovered)'
expect "estimate and peak are reported" small80 AdminComment 'rad: ended estimate_mib=[0-9]+ peak_mib=[0-9]+'
expect "two GPUs" two AllocTRES 'gres/gpu=2'
# radd shares no folder with the nodes: it finds the peak in the accounts, and the same job's next booking says so.
until as alice sbatch --hold --partition=gpu80 share_resnet18.sh 2>&1 | grep -q 'GiB in earlier runs; booked'; do
    [ "$SECONDS" -lt "$deadline" ] || {
        echo "demo: radd never heard of the peak of resnet18" >&2
        faults=$((faults + 1))
        break
    }
    sleep 2 # waits on radd, which looks every 30 s, until the deadline above
done
scancel --user=alice --state=PENDING
scontrol show node -o | grep -E 'State=\S*DRAIN' && { echo "demo: a node was drained" >&2; faults=$((faults + 1)); }
if [ "$faults" = 0 ]; then echo "1 passed, 0 failed"; else echo "0 passed, $faults failed"; exit 1; fi
