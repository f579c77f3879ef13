-- An srun inside a job whose GPUs became shards: its request for GPUs becomes one for the job's shards.
-- Slurm refuses a step that asks for gres/gpu in a job without. What asks for more than the job has stays as it was
-- typed, for Slurm to refuse.

local step = {}

local QUERY = "timeout 5 squeue -h -a -j %s -O NumTasks:16,tres-per-node:256,tres-per-task:256 2>/dev/null </dev/null"
-- What Slurm 22.05 takes for "not given", read as an int: 0, NO_VAL and 0. Later releases refuse the first two.
local NOT_GIVEN = { ["cpus-per-gpu"] = "4294967296", ["ntasks-per-gpu"] = "4294967294", ["mem-per-gpu"] = "0" }
-- Options that ask for GPUs by a number.
local COUNTS = { "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket" }

local function first_line(command)
  local pipe = io.popen(command, "r")
  local line = pipe and pipe:read("*l") or ""
  if pipe then
    pipe:close()
  end
  return line
end

-- The count in "a100:2", "gpu=2" or "2"; a name alone is one.
local function count_of(text)
  return tonumber(text:match("(%d+)$")) or 1
end

-- How many GPUs a list of GRES or TRES asks for, nil for none, and its other parts.
local function split(text)
  local gpus, others = nil, {}
  for part in (text or ""):gmatch("[^,]+") do
    local bare = part:gsub("^gres[:/]", "")
    if bare == "gpu" or bare:match("^gpu[:=]") then
      gpus = (gpus or 0) + (bare == "gpu" and 1 or count_of(bare))
    else
      others[#others + 1] = part
    end
  end
  return gpus, others
end

-- The shards in squeue's text of a request; nil if there are none.
local function shards_in(text)
  return tonumber((text .. ","):match("shard[:=][^,%s]-(%d+)[,%s]"))
end

-- A job's allocation: its shards, and on how many GPUs; nil if it has none. The Prolog put it into the environment
-- of the job's tasks; for an srun from elsewhere (salloc, --jobid) Slurm is queried.
local function allocation_of(job_id)
  local here = os.getenv("SLURM_SHARDS_ON_NODE")
  if os.getenv("RAD_JOB") == job_id then
    local shards = tonumber(os.getenv("RAD_SHARDS") or here)
    local _, commas = (os.getenv("RAD_GPU_INDICES") or ""):gsub(",", "")
    local gpus = os.getenv("RAD_KIND") == "shared" and commas + 1 or 1
    return shards and shards > 0 and { shards = shards, gpus = gpus } or nil
  elseif os.getenv("SLURM_TASK_PID") and os.getenv("SLURM_JOB_ID") == job_id and not here then
    return nil -- one of its tasks, and Slurm passes their shards to those
  end
  local line = first_line(QUERY:format(job_id))
  local tasks = tonumber(line:sub(1, 16):match("%d+")) or 1
  local of_task, of_node = shards_in(line:sub(273)), shards_in(line:sub(17, 272))
  if of_task then
    return { shards = of_task * tasks, gpus = tasks }
  end
  return of_node and { shards = of_node, gpus = 1 }
end

-- How many GPUs a step asks for in all, and how many for each task; nil where it leaves that to its job. A job with
-- shards has one node, and the GPUs of a socket are those of the job (srun(1), --gpus-per-socket). A step's option may
-- stand next to a variable of its job: --gres comes first, else the smaller counts (seen on 24.11 and 26.05).
local function requested_gpus(option, tasks, allocated)
  local each = option("gpus-per-task") and count_of(option("gpus-per-task")) or split(option("tres-per-task"))
  local gpus = split(option("gres"))
  local of_node = gpus or option("gpus-per-node") and count_of(option("gpus-per-node"))
  if each and not (each * tasks > allocated.gpus and of_node and of_node > 0) then -- a count by node comes before it
    return each * tasks, each
  end
  if gpus and gpus > 0 then
    return gpus
  end
  for _, name in ipairs({ "gpus", "gpus-per-node" }) do
    if option(name) then
      local count = count_of(option(name))
      gpus = gpus and gpus > 0 and math.min(gpus, count) or count -- --gres=gpu:0 with SLURM_GPUS=1 asks for one
    end
  end
  return gpus or option("gpus-per-socket") and math.max(allocated.gpus, count_of(option("gpus-per-socket")))
end

-- Whether tasks would be bound to no GPU, or to a number of GPUs that is not given, as before 23.11.5 the shell of
-- salloc has SLURM_GPUS_PER_TASK empty.
local function is_unbound(options, option)
  local bind = option("gpu-bind")
  return bind and bind:find("none$") or not bind and options["gpus-per-task"] == ""
end

-- Bind all tasks to the one GPU of their job: on 22.05 slurmstepd crashes where several tasks with shards are bound
-- to none.
local function bind(options, option, allocated)
  if allocated.gpus == 1 and is_unbound(options, option) then
    options["gpu-bind"] = "single:1"
  end
end

-- Whether a step asks for GPUs, or counts by them.
local function names_gpus(option)
  local found = split(option("gres")) or split(option("tres-per-task"))
  for _, name in ipairs(COUNTS) do
    found = found or option(name)
  end
  for name in pairs(NOT_GIVEN) do
    found = found or option(name)
  end
  return found
end

-- Start srun again with other options in the place of those that count by GPU, as a cli_filter cannot take any back.
-- Returns only where lua-posix is missing.
local function start_again(options, instead)
  local found, unistd = pcall(require, "posix.unistd")
  local has_env, stdlib = pcall(require, "posix.stdlib")
  local file = io.open("/proc/self/cmdline", "rb")
  if not (found and has_env and file) then
    return
  end
  local typed = {}
  for word in file:read("*a"):gmatch("(%Z*)%z") do
    typed[#typed + 1] = word
  end
  file:close()
  local words, value_follows = { [0] = typed[1] }, false
  local function put_instead() -- after what was typed, so that it counts
    for name, value in pairs(instead) do
      words[#words + 1] = string.format("--%s=%s", name, value)
    end
  end
  for at = 2, #typed do
    if at == #typed - #options.argv + 1 then
      put_instead()
    end
    local name = at <= #typed - #options.argv and typed[at]:match("^%-%-(%l+%-per%-g%l*)")
    local dropped = value_follows
    value_follows = false
    for each in pairs(NOT_GIVEN) do
      if name and each:sub(1, #name) == name then
        dropped, value_follows = true, not typed[at]:find("=", 1, true)
      end
    end
    if not dropped then
      words[#words + 1] = typed[at]
    end
  end
  for name in pairs(NOT_GIVEN) do
    stdlib.setenv("SLURM_" .. name:upper():gsub("-", "_"), nil)
  end
  stdlib.setenv("RAD_STEP_REPEATED", "1")
  unistd.exec("/proc/self/exe", words)
end

-- Whether this srun was started again; the sruns of its step are not.
local function is_repeated()
  local repeated = os.getenv("RAD_STEP_REPEATED")
  local found, stdlib = pcall(require, "posix.stdlib")
  if repeated and found then
    stdlib.setenv("RAD_STEP_REPEATED", nil)
  end
  return repeated
end

-- Turn options that count by GPU into what they come to.
local function convert(options, option, tasks, gpus, repeated)
  local cpus, tasks_of_gpu = tonumber(option("cpus-per-gpu")), tonumber(option("ntasks-per-gpu"))
  local memory, unit = (option("mem-per-gpu") or ""):match("^(%d+)(%a?)")
  local instead = {}
  if tasks_of_gpu then -- of one GPU no fewer than requested, as on 22.05
    tasks = math.max(gpus == 1 and tasks or 1, tasks_of_gpu * gpus)
  end
  if cpus or tasks_of_gpu then
    instead.ntasks = string.format("%d", tasks)
  end
  if cpus then
    instead["cpus-per-task"] = string.format("%d", math.max(1, math.ceil(cpus * gpus / tasks)))
  end
  if tasks_of_gpu == 1 and gpus > 1 then
    instead["gpus-per-task"] = "1"
  end
  if memory then
    instead.mem = string.format("%d%s", tonumber(memory) * gpus, unit)
  end
  if not repeated then
    start_again(options, instead)
  end
  instead.mem = nil -- Slurm takes one way of asking for memory: the step then has its job's
  if (cpus or tasks_of_gpu) and not first_line("srun --version 2>/dev/null"):find(" 22.", 1, true) then
    return
  end
  for name, value in pairs(instead) do
    options[name] = value
  end
  for name, value in pairs(NOT_GIVEN) do
    if option(name) then
      options[name] = value
    end
  end
end

-- Ask for no GPU by a count.
local function clear(options, option)
  for _, name in ipairs(COUNTS) do
    if option(name) then
      options[name] = ""
    end
  end
end

-- The parts of a list of TRES that are no shards.
local function without_shards(parts)
  local kept = {}
  for _, part in ipairs(parts) do
    kept[#kept + 1] = not part:find("shard", 1, true) and part or nil
  end
  return kept
end

-- Ask for so many of the job's GPUs in shards, in all or for each task; the Prolog may have asked for each already.
local function ask_for_shards(options, option, allocated, gpus, each)
  local of_one = math.floor(allocated.shards / allocated.gpus)
  local _, others = split(option("gres"))
  local _, others_of_task = split(option("tres-per-task"))
  clear(options, option)
  bind(options, option, allocated)
  if each and allocated.gpus > 1 then
    others_of_task = without_shards(others_of_task)
    others_of_task[#others_of_task + 1] = string.format("gres/shard:%d", of_one * each)
    options["tres-bind"] = string.format("gres/shard:per_task:%d", of_one * each)
  else
    others[#others + 1] = string.format("shard:%d", of_one * gpus)
  end
  if each and (allocated.gpus > 1 or option("tres-per-task")) then
    options["tres-per-task"] = table.concat(others_of_task, ",")
  end
  options.gres = table.concat(others, ",")
end

-- Convert an srun's request for GPUs into one for the job's shards.
-- options: as cli_filter has them. option: a function that returns one as text, nil if it was not given.
function step.rewrite(options, option)
  local repeated = is_repeated()
  local tasks = tonumber(option("ntasks")) or 1
  local job_id = (option("jobid") or os.getenv("SLURM_JOB_ID") or ""):match("^%d+$")
  local concerned = names_gpus(option) or is_unbound(options, option)
  local allocated = concerned and job_id and not os.getenv("SLURM_HET_SIZE") and allocation_of(job_id)
  if not allocated then
    return
  end
  bind(options, option, allocated)
  if option("gres") == "none" then
    clear(options, option) -- of the job, and Slurm refuses both together
    return
  end
  local gpus, each = requested_gpus(option, tasks, allocated)
  local tasks_of_gpu = tonumber(option("ntasks-per-gpu"))
  local counts = option("cpus-per-gpu") or tasks_of_gpu or option("mem-per-gpu")
  if (gpus or 0) > allocated.gpus then
    return -- for Slurm to refuse
  elseif counts then
    gpus = gpus or tasks_of_gpu and tasks > 1 and math.ceil(tasks / tasks_of_gpu)
    convert(options, option, tasks, gpus or allocated.gpus, repeated)
  end
  if not gpus or gpus <= 0 and not counts then
    return
  elseif gpus == 1 and tasks == 1 then
    each = each or allocated.gpus > 1 and 1 or nil -- requested by node, they could be parts of several GPUs
  end
  ask_for_shards(options, option, allocated, gpus, each)
end

return step
