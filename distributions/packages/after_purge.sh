rm -rf /var/lib/rad /var/log/rad /run/rad
# A hook that slurm.conf names and that is not there drains the node. Without the package ours do nothing and end with 0.
if grep -rqs --exclude='*.before-rad-uninstall' '^[^#]*/etc/rad/' /etc/slurm /etc/slurm-llnl; then
    rm -f /etc/rad/key /etc/rad/rad.toml
    echo "rad-slurm: slurm.conf still names hooks in /etc/rad; they stay, and do nothing" >&2
else
    rm -rf /etc/rad
fi
