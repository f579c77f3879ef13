#!/usr/bin/env bash
# What each container of the compose cluster runs.
#
# usage: entrypoint database | slurmdbd | slurmctld | slurmd GPUS MIB | login | prometheus
#        entrypoint healthy ROLE
set -euo pipefail

keys=/etc/rad/keys # a volume that all Slurm containers share; the first one makes the keys
python=/opt/rad/venv/bin/python

fit_version() { # what only later versions know (slurm_plugin/slurm/versions.py)
    case $(slurmctld -V) in *" 22.05"*)
        sed -i 's/,LL_SHARED_GRES//' /etc/slurm/slurm.conf
        echo CgroupPlugin=cgroup/v1 >/etc/slurm/cgroup.conf
        ;;
    esac
}

share_keys() {
    fit_version
    (
        flock 9
        [ -s $keys/munge ] || dd if=/dev/urandom of=$keys/munge bs=128 count=1 status=none
        [ -s $keys/rad ] || dd if=/dev/urandom of=$keys/rad bs=32 count=1 status=none
        chmod 600 $keys/munge $keys/rad
    ) 9>$keys/lock
    install -o munge -g munge -m 400 $keys/munge /etc/munge/munge.key
    install -m 600 $keys/rad /etc/rad/key
    mkdir -p /run/munge /run/rad /var/log/rad /var/lib/rad /var/spool/slurmctld /var/spool/slurmd
    chown munge: /run/munge /var/log/munge /var/lib/munge
    rm -f /run/munge/munge.socket.2*
    runuser -u munge -- /usr/sbin/munged
}

healthy() {
    case $1 in
    database) mariadb-admin ping --silent && mariadb -e 'select 1 from mysql.user where user="slurm"' | grep -q 1 ;;
    slurmdbd) sacctmgr -n show cluster >/dev/null ;;
    slurmctld) scontrol ping | grep -q 'is UP' && [ -S /run/rad/radd.sock ] ;;
    slurmd) scontrol show node "$(hostname)" | grep -Eq 'State=(IDLE|MIXED|ALLOCATED)( |$)' ;;
    login) sinfo -h >/dev/null ;;
    prometheus) promtool check healthy --url=http://localhost:9090 >/dev/null ;;
    esac
}

role=${1:?usage: entrypoint ROLE}
shift
case $role in
healthy) healthy "$1" ;;
database)
    mkdir -p /run/mysqld && chown mysql: /run/mysqld /var/lib/mysql
    [ -d /var/lib/mysql/mysql ] || mariadb-install-db --user=mysql --skip-test-db >/dev/null
    cat >/run/mysqld/init.sql <<'SQL'
create database if not exists slurm_acct_db;
create user if not exists slurm identified by 'slurm';
grant all on slurm_acct_db.* to slurm;
SQL
    # slurmdbd's own advice: long lock waits, and no snapshot isolation on MariaDB 11 (10 does not know the option).
    exec mariadbd --user=mysql --init-file=/run/mysqld/init.sql --bind-address=0.0.0.0 \
        --innodb-buffer-pool-size=256M --innodb-lock-wait-timeout=900 --loose-innodb-snapshot-isolation=OFF
    ;;
slurmdbd)
    share_keys
    cat >/etc/slurm/slurmdbd.conf <<'CONF'
AuthType=auth/munge
DbdHost=slurmdbd
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=database
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
CONF
    chmod 600 /etc/slurm/slurmdbd.conf
    exec slurmdbd -D
    ;;
slurmctld)
    share_keys
    sacctmgr -i add cluster rad >/dev/null 2>&1 || true
    sacctmgr -i add account lab >/dev/null 2>&1 || true
    sacctmgr -i add user alice,bob,root account=lab >/dev/null 2>&1 || true
    /opt/rad/venv/bin/radd --config /etc/rad/rad.toml --slurm-user root &
    /opt/rad/venv/bin/rad metrics --serve 0.0.0.0:9836 &
    exec slurmctld -D
    ;;
slurmd)
    share_keys
    gpus=${1:?number of GPUs} mib=${2:?memory of one GPU in MiB}
    $python -I -m slurm_plugin.monitor.gpus.simulated_node "$gpus" "$mib"
    sed -i "s#/run/rad-gpus#/run/rad-gpus/$(hostname)#" /etc/rad/rad.toml
    /opt/rad/venv/bin/rad-monitor --config /etc/rad/rad.toml &
    exec slurmd -D -N "$(hostname)"
    ;;
prometheus)
    cd /etc/prometheus
    sed -i 's/"controller:9836"/"slurmctld:9836"/' prometheus.yml # the name of the machine that runs it here
    exec prometheus --config.file=prometheus.yml --storage.tsdb.path=/tmp/prometheus
    ;;
login)
    share_keys
    exec sleep infinity
    ;;
*)
    echo "entrypoint: unknown role $role" >&2
    exit 2
    ;;
esac
