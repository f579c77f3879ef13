rm -rf /var/lib/rad /var/log/rad /run/rad
# A hook that slurm.conf names and that is not there drains the node. Without the package, RAD's do nothing and end with 0.
# What `rad install` wrote next to slurm.conf shows where that is.
slurm=$(sed -n 's|^[0-9a-f]*  \(/.*\)/rad/rad_settings\.lua$|\1|p' /etc/rad/installed.sha256 2>/dev/null | head -n 1)
if grep -rqs --exclude='*.before-rad-uninstall' --exclude-dir=rad '^[^#]*/etc/rad/[a-z_]*\.sh' /etc/slurm /etc/slurm-llnl ${slurm:+"$slurm"}; then
    rm -f /etc/rad/key /etc/rad/rad.toml
    echo "rad-slurm: slurm.conf still names hooks in /etc/rad; they stay, and do nothing" >&2
else
    rm -rf /etc/rad
fi
