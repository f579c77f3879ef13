-- Where RAD's parts are, for job_submit.lua and cli_filter.lua. Upstream's SlurmUser has the uid 990.
return {
  socket = "/run/rad/radd.sock",
  trusted_uids = { [0] = true, [990] = true },
  python = "/opt/rad/venv/bin/python",
  config = "/etc/rad/rad.toml",
}
