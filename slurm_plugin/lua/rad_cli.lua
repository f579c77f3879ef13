-- RAD's part of cli_filter.lua: on the login node, as the user, before anything reaches slurmctld.
-- A small program reads the model summary; what a job does not ask of RAD costs it nothing but a glance at its script.
-- Whatever goes wrong here, the submission goes on as it was typed: no function of this module ever raises.

local json = require("rad_json")
local step = require("rad_step")

local cli = {}

cli.settings = {
  python = "/opt/rad/venv/bin/python",
  config = "/etc/rad/rad.toml",
  time_limit_s = 10,
}

local REPLY_LIMIT = 65536

-- What the program hears: options under their own names.
local REPORTED = {
  "partition", "comment", "gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "cpus-per-gpu",
  "mem-per-gpu", "gpu-bind", "gpu-freq", "ntasks-per-gpu", "ntasks-per-node", "nodes", "ntasks", "exclusive",
  "container", "cpus-per-task", "mincpus", "mem", "mem-per-cpu", "constraint",
}

-- What the program may change.
local SETTABLE = {
  comment = true, gres = true, gpus = true, nodes = true, ["gpus-per-node"] = true, ["gpus-per-task"] = true,
  ["cpus-per-task"] = true, mincpus = true, mem = true,
}

local ok_settings, site = pcall(require, "rad_settings")
if ok_settings and type(site) == "table" then
  for name, value in pairs(site) do
    cli.settings[name] = value
  end
end

-- How Slurm says that an option was not given, apart from nil.
local NOT_GIVEN = { [""] = true, unset = true, ["0"] = true, ["-1"] = true, ["-2"] = true }

local function option(options, name)
  local ok, value = pcall(function()
    return options[name]
  end)
  value = ok and tostring(value or "") or ""
  if NOT_GIVEN[value] then
    return nil
  end
  return value
end

-- Show a line as job_submit's are shown, "sbatch: RAD: ...": slurm.log_info puts "lua: " in between, and log_user,
-- where a cli_filter has it (tried on 26.05), shows nothing.
local function say(options, text, is_error)
  if option(options, "quiet") and not is_error then
    return
  end
  local name = (option(options, "type") or "sbatch") .. (is_error and ": error: " or ": ")
  pcall(function()
    io.stderr:write(name, (tostring(text):gsub("%c", " ")), "\n")
  end)
end

-- Set variables of this process, which the job inherits; nil removes one.
local function set_environment(names, value)
  local found, stdlib = pcall(require, "posix.stdlib")
  for _, name in ipairs(found and names or {}) do
    stdlib.setenv(name, value)
  end
end

-- Where salloc or srun requested memory by node for memory by GPU, Slurm sets a variable that it would not set without
-- RAD. A job submitted from there would inherit it next to SLURM_MEM_PER_CPU of its own, which srun refuses.
local MEMORY_BY_GPU = "RAD_MEMORY_BY_GPU"
local function drop_inherited_memory()
  if os.getenv(MEMORY_BY_GPU) then
    set_environment({ MEMORY_BY_GPU, "SLURM_MEM_PER_NODE" }, nil)
  end
end

local function script_path(options)
  local ok, path = pcall(function()
    return options.argv[1]
  end)
  return ok and path or nil
end

-- The shell line that starts the program, with what it hears as its argument: no file that a full disk, a limit or a
-- TMPDIR could refuse. With look_first, the program starts only if the script is a regular file with a #RAD line that
-- names a model: `sbatch` may have read its script from a FIFO, which must not be opened again.
local function command(message, look_first)
  local function quoted(text)
    return "'" .. text:gsub("'", "'\\''") .. "'"
  end
  local start = string.format(
    "exec timeout %d %s -I -m slurm_plugin.login.cli_filter %s %s",
    cli.settings.time_limit_s, quoted(cli.settings.python), quoted(cli.settings.config), quoted(json.encode(message))
  )
  if look_first then
    local path = quoted(message.script)
    start = string.format('[ -f %s ] && head -c 65536 -- %s | grep -q "^#RAD.*model=" && %s', path, path, start)
  end
  return "exec 2>/dev/null </dev/null; " .. start
end

local function run(message, look_first)
  local pipe = assert(io.popen(command(message, look_first), "r"))
  local line = pipe:read(REPLY_LIMIT)
  pipe:close()
  return line and json.decode(line)
end

local function apply(options, reply)
  for _, text in ipairs(reply.say or {}) do
    say(options, text)
  end
  if type(reply.refuse) == "string" then
    say(options, reply.refuse, true)
    return slurm.ERROR
  end
  for name, value in pairs(reply.set or {}) do
    if SETTABLE[name] and type(value) == "string" then
      options[name] = value
    end
  end
  set_environment(reply.memory_by_gpu and { MEMORY_BY_GPU } or {}, "1")
  return slurm.SUCCESS
end

local function asks_for_gpu(options)
  for _, name in ipairs({ "gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket" }) do
    if (option(options, name) or ""):find(name == "gres" and "gpu" or ".") then
      return true
    end
  end
  return false
end

-- Only the command line distinguishes the first component of a heterogeneous job from an ordinary job.
local function is_heterogeneous(pack_offset)
  local file = io.open("/proc/self/cmdline", "rb")
  local words = file and file:read(REPLY_LIMIT) or ""
  if file then
    file:close()
  end
  return pack_offset ~= 0 or words:find("\0:\0", 1, true) ~= nil
end

local function pre_submit(options, pack_offset)
  local kind = option(options, "type")
  if kind ~= "sbatch" and kind ~= "srun" and kind ~= "salloc" then
    return slurm.SUCCESS -- scrontab: job_submit decides
  end
  if kind == "srun" and os.getenv("SLURM_JOB_ID") or option(options, "jobid") then
    step.rewrite(options, function(name)
      return option(options, name)
    end)
    return slurm.SUCCESS -- a step of a job that is already there
  end
  drop_inherited_memory()
  if kind ~= "sbatch" and is_heterogeneous(pack_offset) then
    return slurm.SUCCESS
  end
  local path = kind == "sbatch" and script_path(options) or nil
  local comment = option(options, "comment") or ""
  local has_words = comment:find("rad:", 1, true) and (kind ~= "sbatch" or comment:find("model=", 1, true))
  local look_first = not has_words and path ~= nil
  if not (has_words or path or (kind ~= "sbatch" and asks_for_gpu(options))) then
    return slurm.SUCCESS
  end
  local message = { command = kind, script = path }
  for _, name in ipairs(REPORTED) do
    message[name] = option(options, name)
  end
  local reply = run(message, look_first)
  if type(reply) ~= "table" then
    return slurm.SUCCESS
  end
  return apply(options, reply)
end

-- For slurm_cli_pre_submit. Returns what that function must return.
function cli.pre_submit(options, pack_offset)
  local ok, result = pcall(pre_submit, options, pack_offset)
  if not ok then
    say(options, "RAD: internal error; the job was submitted unchanged; please report: " .. tostring(result))
    return slurm.SUCCESS
  end
  return result
end

return cli
