for folder in rad/venv/bin rad/venv/lib/python3/site-packages rad/venv/lib/python3 rad/venv/lib rad/venv rad; do
    rmdir "/opt/$folder" 2>/dev/null || true
done
[ ! -d /run/systemd/system ] || systemctl daemon-reload || true
