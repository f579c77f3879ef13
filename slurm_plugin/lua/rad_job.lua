-- One job_desc as Slurm gives it: read without raising, and changed as a whole or not at all.

local job = {}

-- What radd may change. Anything else in a reply is a fault, and the reply is ignored.
local SETTABLE = {
  gres = true, tres_per_job = true, tres_per_task = true, tres_bind = true, cpus_per_tres = true,
  mem_per_tres = true, cpus_per_task = true, min_cpus = true, min_mem_per_node = true, min_nodes = true,
  max_nodes = true, num_tasks = true, ntasks_per_node = true, pn_min_cpus = true, gres_flags = true, comment = true,
  admin_comment = true,
}

-- The words of --gres-flags, and Slurm's names for their bits in job_desc.bitflags.
local GRES_FLAGS = { ["one-task-per-sharing"] = "GRES_ONE_TASK_PER_SHARING" }

-- A field's value; nil for an empty text and for a field that this Slurm does not have.
function job.field(record, name)
  local ok, value = pcall(function()
    return record[name]
  end)
  if ok and value ~= "" then
    return value
  end
  return nil
end

-- The job's flags with one more. Lua 5.1 has no operations on bits, and a double holds them exactly.
local function flags_with(job_desc, word)
  local bit = slurm[GRES_FLAGS[word]]
  if type(bit) ~= "number" then
    error("Slurm here knows no --gres-flags=" .. word, 0)
  end
  local flags = job_desc.bitflags or 0
  return math.floor(flags / bit) % 2 == 0 and flags + bit or flags
end

-- Set all fields of a job, or none of them; raises where it is none.
function job.set_fields(job_desc, changes)
  local before = {}
  for name, value in pairs(changes) do
    if not SETTABLE[name] or type(value) ~= "string" then
      error("radd may not set " .. tostring(name), 0)
    end
    before[name] = job.field(job_desc, name) or ""
  end
  if changes.gres_flags then
    before.gres_flags, before.bitflags = nil, job_desc.bitflags
  end
  local ok, problem = pcall(function()
    for name, value in pairs(changes) do
      if name == "gres_flags" then
        job_desc.bitflags = flags_with(job_desc, value)
      else
        job_desc[name] = value
      end
    end
  end)
  if not ok then
    for name, value in pairs(before) do
      pcall(function()
        job_desc[name] = name == "gres" and value:gsub("gres[:/]", "") or value
      end)
    end
    error(problem, 0)
  end
end

-- Counts of GPUs that scripts read. TaskProlog restores them where a step that uses them runs (booking/gres_text.py).
local COUNTS = { SLURM_GPUS = true, SLURM_GPUS_PER_NODE = true, SLURM_GPUS_PER_TASK = true }

-- Give variables other values, where the job has them or they are RAD's. salloc and srun send no environment.
function job.set_environment(job_desc, changes)
  pcall(function()
    for name, value in pairs(changes) do
      local typed = job_desc.environment[name] or ""
      if typed ~= "" or name:sub(1, 4) == "RAD_" then
        job_desc.environment[name] = value
        if COUNTS[name] then
          job_desc.environment["RAD_TYPED_" .. name] = typed
        end
      end
    end
  end)
end

return job
