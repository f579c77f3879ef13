-- Where RAD's parts are, for job_submit.lua and cli_filter.lua; it lies with RAD's Lua files, in rad/ next to slurm.conf.
return {
  socket = "/run/rad/radd.sock",
  trusted_uids = { [0] = true, [64030] = true }, -- root and SlurmUser
  python = "/opt/rad/venv/bin/python",
  config = "/etc/rad/rad.toml",
}
