#!/usr/bin/env bash
# From a Slurm without RAD to a first shared job, by README's commands, on a bare Debian 13 that boots with systemd.
#
# usage: make packages && tools/try_first_steps.sh      needs root, debootstrap and systemd-container
#
# The machine is a container (systemd-nspawn) with Debian's Slurm and two simulated GPUs; it is removed at the end. Prints
# each command that a person types and its seconds, as rows of a Markdown table.
set -euo pipefail

site() { # an ordinary site before RAD: one node, two GPUs, no Lua
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurmctld slurmd slurm-client \
        slurm-wlm-basic-plugins munge lua-posix python3 >/dev/null
    useradd --create-home alice
    cat >/etc/slurm/slurm.conf <<'END'
ClusterName=first
SlurmctldHost=gpu1
SlurmUser=slurm
SlurmctldPort=26817
SlurmdPort=26818
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=500
GresTypes=gpu
NodeName=gpu1 CPUs=8 RealMemory=16000 Gres=gpu:a100:2 State=UNKNOWN
PartitionName=gpu Nodes=gpu1 Default=YES State=UP
END
    echo 'NodeName=gpu1 Name=gpu Type=a100 File=/srv/gpus/nvidia[0-1]' >/etc/slurm/gres.conf
    echo 'CgroupPlugin=disabled' >/etc/slurm/cgroup.conf
    mkdir -p /var/lib/slurm/slurmctld /var/lib/slurm/slurmd && chown slurm /var/lib/slurm/slurmctld
    systemctl enable --now munge slurmctld slurmd >/dev/null 2>&1
    systemctl restart munge slurmctld slurmd
    until_true 'node is idle' idle
    as_alice srun --gres=gpu:1 true
    cp -a /etc/slurm /root/slurm-before
}

simulate_gpus() { # the one step that a machine with GPUs does not need
    sed -i 's/source = "auto"/source = "simulated"/; s|simulated_folder = ""|simulated_folder = "/srv/simulated"|' /etc/rad/rad.toml
    /opt/rad/venv/bin/python - <<'END'
from pathlib import Path
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus
from slurm_plugin.monitor.gpus.simulated_gpus import make_gpus

SimulatedGpus.create(Path("/srv/simulated"), make_gpus("gpu1", [40330 << 20] * 2))
END
}

idle() { [ "$(sinfo -h -o %T)" = idle ]; }

as_alice() { (cd /home/alice && setpriv --reuid=alice --regid=alice --clear-groups env HOME=/home/alice "$@"); }

until_true() { # until_true WHAT COMMAND...: within a minute
    local what=$1 end=$((SECONDS + 60))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || { echo "not so after a minute: $what"; what_happened; exit 1; }
        sleep 0.1
    done
}

what_happened() {
    sinfo -N -o '%N %T %E'
    scontrol show job
    tail -n 8 /var/log/slurm/*.log /var/log/rad/*
}

typed() { # typed USER COMMAND: run it as a person would and print its row
    local user=$1 command=$2 began
    began=$(date +%s%N)
    if [ "$user" = admin ]; then
        bash -c "$command" >/tmp/said 2>&1 || { cat /tmp/said; exit 1; }
    else
        as_alice bash -c "$command" >/tmp/said 2>&1 || { cat /tmp/said; exit 1; }
    fi
    awk -v user="$user" -v command="$command" -v ms=$((($(date +%s%N) - began) / 1000000)) \
        'BEGIN { printf "| %s | `%s` | %.1f |\n", user, command, ms / 1000 }'
}

inside() {
    local job
    site
    echo '| user | command | seconds |'
    echo '|---|---|---|'
    typed admin 'apt-get install -y /srv/rad/rad-slurm_*_all.deb'
    typed admin 'rad install --edit-slurm --gpu-memory-mib 40330 --mode enforce'
    simulate_gpus
    typed admin 'systemctl enable --now radd && systemctl restart slurmctld'
    typed admin 'systemctl enable --now rad-monitor && systemctl restart slurmd'
    until_true 'node is idle again' idle
    typed admin 'rad doctor'
    cp /tmp/said /srv/out/doctor
    cp /srv/rad/resnet50.txt /home/alice/
    # shellcheck disable=SC2016 # the job expands it
    printf '%s\n' '#!/bin/bash' '#SBATCH --gpus=1' '#SBATCH --output=%j.out' '#RAD model=resnet50.txt batch_size=32 optimizer=adam precision=amp' \
        'echo "$RAD_KIND on $RAD_GPUS, limit $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"; sleep 2' >/home/alice/job.sh
    chown alice: /home/alice/*
    typed alice 'rad-estimate job.sh'
    cp /tmp/said /srv/out/estimate
    typed alice 'sbatch job.sh'
    cp /tmp/said /srv/out/sbatch
    job=$(grep -oE '[0-9]+$' /tmp/said)
    until_true "job $job completed" eval "scontrol show job $job | grep -q JobState=COMPLETED"
    grep -q '^shared on ' "/home/alice/$job.out" || { cat "/home/alice/$job.out"; exit 1; }
    cat "/home/alice/$job.out" >/srv/out/job
    for _ in 1 2 3; do # shards, then hooks, then PrologFlags: docs/admin/upgrade-uninstall.md
        typed admin 'rad uninstall --edit-slurm; systemctl restart slurmctld && systemctl restart slurmd'
        until_true 'node is idle again' idle
        systemctl reset-failed slurmctld slurmd # a person is not so quick that systemd refuses a further start
    done
    for file in slurm.conf gres.conf cgroup.conf; do cmp "/root/slurm-before/$file" "/etc/slurm/$file"; done
    echo && echo 'After uninstall slurm.conf, gres.conf and cgroup.conf have the bytes they had before.'
}

case ${1:-} in
typing) inside && exit ;;
inside)
    bash "$0" typing >/srv/out/table 2>&1 && touch /srv/out/done
    exec systemctl poweroff
    ;;
esac

[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 2; }
cd "$(dirname "$0")/.."
work=$(mktemp -d -p "${RAD_CHROOTS:-/var/tmp}") root=$work/root
trap 'rm -rf --one-file-system "$work"' EXIT
debootstrap --variant=minbase --include=ca-certificates,systemd,systemd-sysv,dbus,python3 \
    trixie "$root" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$work/log" 2>&1 || { tail -5 "$work/log"; exit 1; }
mkdir -p "$root/srv/out" "$root/srv/rad" "$root/srv/gpus"
mknod "$root/srv/gpus/nvidia0" c 240 0 # which no driver here knows
mknod "$root/srv/gpus/nvidia1" c 240 1
cp dist/rad-slurm_*_all.deb examples/models/resnet50_torchinfo.txt "$root/srv/rad/"
mv "$root/srv/rad/resnet50_torchinfo.txt" "$root/srv/rad/resnet50.txt"
cp tools/try_first_steps.sh "$root/srv/steps.sh"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
echo gpu1 >"$root/etc/hostname"
echo '127.0.0.1 localhost gpu1' >"$root/etc/hosts"
cat >"$root/etc/systemd/system/steps.service" <<'END'
[Unit]
After=basic.target
[Service]
Type=oneshot
ExecStart=/bin/bash /srv/steps.sh inside
END
# shellcheck disable=SC2016 # the inner shell expands it
timeout 400 unshare --mount --propagation private bash -c '
    umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup # systemd 257 wants no version 1
    exec systemd-nspawn --quiet --register=no --keep-unit --resolv-conf=off --hostname=gpu1 --boot --directory="$1" systemd.wants=steps.service
' _ "$root" </dev/null >"$work/boot.log" 2>&1 || true
for file in table doctor estimate sbatch job; do
    [ ! -e "$root/srv/out/$file" ] || { echo; echo "--- $file"; cat "$root/srv/out/$file"; }
done
[ -e "$root/srv/out/done" ] || { tail -5 "$work/boot.log"; exit 1; }
