#!/usr/bin/env bash
# Starts RAD's part of a container, then upstream's entrypoint, unchanged and with the same words.
#
# usage: rad-entrypoint.sh slurmctld | slurmd-cpu | slurmd-gpu | ...   upstream's roles; radd runs next to slurmctld
#        rad-entrypoint.sh slurmd-rad GPUS MIB                        a node with simulated GPUs, and rad-monitor
set -euo pipefail

upstream=/usr/local/bin/docker-entrypoint.sh
python=/opt/rad/venv/bin/python
shared=/etc/slurm # a volume that all Slurm containers share; it keeps what it held when the image changes

# Put our lines into the shared configuration; at every start, since upstream's tools write slurm.conf again.
configure() {
    install -d -o slurm -g slurm $shared/rad
    install -o slurm -g slurm -m 644 -t $shared/rad /opt/rad/etc/*
    mv $shared/rad/job_submit.lua $shared/rad/cli_filter.lua $shared/
    sed -i 's/^GresTypes=.*/GresTypes=gpu,shard/' $shared/slurm.conf
    for file in slurm.conf gres.conf; do
        include="Include $shared/rad/$file"
        grep -qsxF "$include" $shared/$file || echo "$include" >>$shared/$file
    done
    [ -s $shared/rad.key ] || (umask 077 && dd if=/dev/urandom of=$shared/rad.key bs=32 count=1 status=none)
}

# The cluster's key and our folders; slurmctld and radd run as SlurmUser, everything on a node as root.
prepare() {
    local owner=$1
    install -o "$owner" -m 600 $shared/rad.key /etc/rad/key
    install -d -o "$owner" /run/rad /var/log/rad /var/lib/rad
}

case ${1:-} in
slurmctld)
    configure
    prepare slurm
    gosu slurm /opt/rad/venv/bin/radd --config /etc/rad/rad.toml --slurm-user slurm &
    ;;
slurmd-cpu | slurmd-gpu) prepare root ;;
slurmd-rad)
    gpus=${2:?number of GPUs} mib=${3:?memory of one GPU in MiB}
    prepare root
    $python -I -m slurm_plugin.monitor.gpus.simulated_node "$gpus" "$mib"
    sed -i "s#\"/run/rad-gpus\"#\"/run/rad-gpus/$(hostname)\"#" /etc/rad/rad.toml
    /opt/rad/venv/bin/rad-monitor --config /etc/rad/rad.toml &
    # Dynamic registration as upstream's own workers do it; upstream's entrypoint starts munged and runs what follows.
    set -- /usr/sbin/slurmd -Z -D --conf "Feature=rad Gres=gpu:$gpus,shard:$((gpus * mib / 1024))"
    ;;
esac
exec $upstream "$@"
