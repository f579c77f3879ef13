if [ -d /run/systemd/system ]; then
    systemctl disable --now radd.socket radd.service rad-monitor.service || true
fi
find /opt/rad/venv/lib -name __pycache__ -type d -exec rm -rf {} + 2>/dev/null || true
rm -f /opt/rad/venv/bin/python
