-- cli_filter.lua: lets RAD read the model summary that a job names, on the login node and as the user.
-- A site with a cli_filter.lua of its own keeps it and adds the two marked lines (1) and (2) to it.

local here = debug.getinfo(1, "S").source:match("^@(.*)/") or "/etc/slurm"
package.path = here .. "/rad/?.lua;/etc/slurm/rad/?.lua;" .. package.path -- configless nodes get this file alone
local found, rad_cli = pcall(require, "rad_cli") -- (1) with a package.path that leads to RAD's Lua files

function slurm_cli_setup_defaults(options, early_pass)
  return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, pack_offset)
  return found and rad_cli.pre_submit(options, pack_offset) or slurm.SUCCESS -- (2)
end

function slurm_cli_post_submit(offset, job_id, step_id)
  return slurm.SUCCESS
end

return slurm.SUCCESS
