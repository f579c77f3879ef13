-- Runs the hooks outside Slurm: one JSON command a line on stdin, one JSON result a line on stdout.
-- Arguments: the folder of the shims, the settings as JSON, and what to hide ("socket", "posix", "socket,posix" or "").

local folder, settings_text, hidden = arg[1], arg[2], arg[3]
package.path = folder .. "/?.lua;" .. package.path

local has_errno, errno = pcall(require, "posix.errno") -- read as slurmctld does, whatever is hidden below
has_errno = has_errno and errno.set_errno

for name in hidden:gmatch("[^,]+") do
  local real = require
  function require(module, ...)
    if module == name or module:sub(1, #name + 1) == name .. "." then
      error("module '" .. module .. "' not found", 0)
    end
    return real(module, ...)
  end
end

local json = require("rad_json")
local settings = json.decode(settings_text)
settings.proc = settings.proc or "/nowhere" -- the program has just started
settings.trusted_uids = { [0] = true, [64030] = true }
package.preload["rad_settings"] = function()
  return settings
end

local logged, said
slurm = { SUCCESS = 0, ERROR = -1 }

-- As in Slurm: the first argument is a format, and a wrong one raises.
function slurm.log_info(...)
  logged[#logged + 1] = string.format(...)
end
slurm.log_error = slurm.log_info
function slurm.log_user(...)
  said[#said + 1] = string.format(...)
end

-- As in Slurm: fields are read and written through a metatable; nil and unknown names cannot be written.
local function job_desc(fields, refused)
  return setmetatable({}, {
    __index = function(_, name)
      return fields[name]
    end,
    __newindex = function(_, name, value)
      if type(value) ~= "string" or name == refused then
        error("_set_job_field: " .. tostring(name))
      end
      fields[name] = value
    end,
  })
end

local rad = require("rad")

for line in io.lines() do
  local command = json.decode(line)
  logged, said = {}, {}
  slurm.ESLURM_INVALID_GRES = command.invalid_gres
  slurm.reservations = command.reservations
  local fields = command.job or {}
  if fields.argv0 then
    fields.argv = { [0] = fields.argv0 }
  end
  local ok, rc
  if has_errno then
    errno.set_errno(0)
  end
  if command.op == "submit" then
    ok, rc = pcall(rad.submit, job_desc(fields, command.refused), command.partitions or {}, command.uid)
  else
    ok, rc = pcall(rad.modify, job_desc(fields, command.refused), command.rec, {}, command.uid)
  end
  local left = has_errno and select(2, errno.errno()) or nil
  fields.argv = nil
  print(json.encode({ ok = ok, rc = rc, job = fields, said = said, logged = logged, errno = left }))
  io.stdout:flush()
end
