-- Where RAD's parts are, for job_submit.lua and cli_filter.lua; it lies with RAD's Lua files, in rad/ next to slurm.conf.
return {
  socket = "{{socket}}",
  trusted_uids = { [0] = true, [{{slurm_uid}}] = true }, -- root and SlurmUser
  python = "{{python}}",
  config = "{{config}}",
}
