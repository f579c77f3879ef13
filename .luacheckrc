-- What luacheck must know of Slurm's Lua; `make lint` runs it.
std = "min" -- what Lua 5.1 to 5.4 share: Slurm is built with any of them
max_line_length = 120
globals = { "slurm" }
ignore = { "212/part_list" } -- Slurm's own parameter

files["slurm_plugin/lua/job_submit.lua"].globals = { "slurm_job_submit", "slurm_job_modify" }
files["slurm_plugin/lua/cli_filter.lua"].globals = {
  "slurm_cli_setup_defaults", "slurm_cli_pre_submit", "slurm_cli_post_submit",
}
files["slurm_plugin/lua/cli_filter.lua"].ignore = { "212" } -- the parameters that Slurm gives
files["tests/lua/hooks.lua"].globals = { "require" } -- a require that can be made to fail
files["gres_conf/rad_settings.lua"].ignore = { "631", "113/slurm_uid" } -- a template
files["tests/golden"].ignore = { "631" }
