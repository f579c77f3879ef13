# Of a new package and of an upgrade. The interpreter is the distribution's own, the newest that this release knows; the
# link is changed in one step, because a hook may start at any moment.
for python in /usr/bin/python3 /usr/bin/python3.14 /usr/bin/python3.13 /usr/bin/python3.12 /usr/bin/python3.11; do
    if "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; then
        ln -sfn "$python" /opt/rad/venv/bin/.python && mv -fT /opt/rad/venv/bin/.python /opt/rad/venv/bin/python
        break
    fi
done
# Compiled now, so that the first hook of each job type does not pay for it.
/opt/rad/venv/bin/python -I -m compileall -q -j 0 /opt/rad/venv/lib/python3/site-packages || true
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    systemctl try-restart radd.service rad-monitor.service || true
fi
