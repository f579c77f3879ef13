-- What radd hears of a submission, and what of a change is a change of the request.

local field = require("rad_job").field

local request = {}

local PROTOCOL = 1
local SCRIPT_HEAD = 65536
local LONGEST = { comment = 2048 } -- what is longer is no request that Slurm would take
local LONGEST_OTHER = 1024
local LONGEST_CONSTRAINT = 65536 -- the part of one that is looked through

-- job_desc fields, which radd hears of under their own names.
local REPORTED = {
  "partition", "gres", "tres_per_job", "tres_per_task", "tres_per_socket", "tres_bind", "tres_freq",
  "cpus_per_tres", "mem_per_tres", "ntasks_per_gpu", "ntasks_per_node", "min_nodes", "max_nodes", "num_tasks",
  "cpus_per_task", "pn_min_cpus", "min_mem_per_node", "min_mem_per_cpu", "comment", "container",
}

-- What a change must not touch without the booking being looked at again.
local REQUEST = {
  "gres", "tres_per_job", "tres_per_task", "tres_per_socket", "tres_bind", "tres_freq", "cpus_per_tres", "mem_per_tres",
  "partition", "min_nodes", "max_nodes", "num_tasks", "ntasks_per_node", "ntasks_per_gpu",
}

-- The whole lines at a script's start where #RAD is among them, and whether there are #RAD lines behind them.
local function head_of_script(job_desc)
  local script = field(job_desc, "script")
  if type(script) ~= "string" then
    return nil
  end
  local head, more = script, nil
  if #script > SCRIPT_HEAD then
    head = script:sub(1, SCRIPT_HEAD):match("^.*\n") or "" -- half a line would say something else
    more = script:find("\n#RAD", math.max(#head, 1), true) and true
  end
  if not head:find("#[ \t]*[Rr][Aa][Dd]%f[%W]") then -- radd reports lines that were only meant as #RAD
    return nil, more
  end
  head = head:gsub("[\11\12]", " ") -- page breaks
  return head:gsub("[%z\1-\8\14-\31\127]", "?"), more -- escaped, each of them would be six bytes
end

local function script_name(job_desc)
  local ok, name = pcall(function()
    return job_desc.argv[0]
  end)
  return ok and type(name) == "string" and name:sub(-LONGEST_OTHER):gsub("%c", "?") or nil
end

-- The partitions that a job may start in.
local function partitions_of(job_desc, part_list)
  local named, found = field(job_desc, "partition"), {}
  for name, partition in pairs(part_list or {}) do
    local meant
    if named then
      meant = ("," .. named .. ","):find("," .. name .. ",", 1, true)
    else
      meant = partition.flag_default == 1
    end
    found[#found + 1] = meant and partition or nil
  end
  return found
end

-- Whether a job gets whole nodes: by --exclusive, or because one of its partitions gives no others
-- (OverSubscribe=EXCLUSIVE). On such a node Slurm starts no job that asks for shards: it would wait for ever.
local function takes_whole_nodes(job_desc, partitions)
  local whole = job_desc.shared == 0
  for _, partition in ipairs(partitions) do
    whole = whole or partition.max_share == 0
  end
  return whole
end

-- How many CPUs a node of a job's partitions has on average, the fewest; nil if Slurm does not tell.
local function cpus_of_node(partitions)
  local fewest
  for _, partition in ipairs(partitions) do
    local cpus, nodes = field(partition, "total_cpus"), field(partition, "total_nodes")
    if type(cpus) == "number" and type(nodes) == "number" and cpus > 0 and nodes > 0 then
      fewest = math.min(fewest or cpus, math.ceil(cpus / nodes))
    end
  end
  return fewest
end

-- The counts of nodes in a constraint, "*1*3" of "[a*1&b*3]"; nil without any. Slurm takes constraints of any length.
local function node_counts(job_desc)
  local counts = {}
  for count in (field(job_desc, "features") or ""):sub(1, LONGEST_CONSTRAINT):gmatch("%*%d+") do
    counts[#counts + 1] = count
  end
  local text = table.concat(counts):sub(1, LONGEST_OTHER)
  return text ~= "" and text or nil
end

-- Whether a job names a reservation of GPUs or cores and not of whole nodes. Slurm 26.05 starts no shards in one.
local function reserves_parts(job_desc)
  local ok, found = pcall(function()
    for name in (field(job_desc, "reservation") or ""):gmatch("[^,]+") do
      if slurm.reservations[name].full_nodes == false then
        return true
      end
    end
  end)
  return ok and found or nil
end

local STARTED_S = 10 -- Slurm 22.05.8 took shards again 4 s after its start, when the first node had come
local TICKS_PER_S = 100 -- USER_HZ, the same on every Linux: proc(5)
local started = false

local function number_in(path, pattern)
  local file = io.open(path, "r")
  local text = file and file:read("*l") or ""
  if file then
    file:close()
  end
  return tonumber(text:match(pattern))
end

-- Whether this slurmctld has just started. Before 23.11 one that took up a saved state knows of no shards until its
-- nodes have come, and refuses jobs that ask for some (slurm/versions.py).
function request.is_new_controller(proc)
  if started then
    return false
  end
  local ticks = number_in(proc .. "/self/stat", "^.*%)" .. (" %S+"):rep(19) .. " (%d+)") -- field 22
  local now_s = number_in(proc .. "/uptime", "^(%S+)")
  local age_s = ticks and now_s and now_s - ticks / TICKS_PER_S
  started = not age_s or age_s < 0 or age_s > STARTED_S -- below 0: LXC counts /proc/uptime from the container's start
  return not started
end

-- A message of this protocol; `values` become its fields.
function request.message(op, values)
  values.v, values.op = PROTOCOL, op
  return values
end

-- Whether a reply speaks this protocol.
function request.is_of_radd(reply)
  return reply.v == PROTOCOL
end

-- The message about a submission; raises for a request that Slurm would not take.
function request.of(job_desc, part_list, submit_uid)
  local message = request.message("submit", {})
  message.user_id = field(job_desc, "user_id") or submit_uid -- root may submit for another user
  for _, name in ipairs(REPORTED) do
    local value = field(job_desc, name)
    if type(value) == "string" and #value > (LONGEST[name] or LONGEST_OTHER) then
      error(string.format("its %s has %d bytes", name, #value), 0)
    end
    message[name] = value
  end
  local offset = field(job_desc, "het_job_offset")
  message.recurs = field(job_desc, "cron_job") and true -- of scrontab, which leaves the offset at 0
  message.heterogeneous = type(offset) == "number" and offset < 0xFFFFFFFE and not message.recurs
  message.interactive = field(job_desc, "script") == nil -- also --wrap and stdin make a script
  message.reserves_parts = reserves_parts(job_desc)
  local partitions = partitions_of(job_desc, part_list)
  message.whole_nodes = takes_whole_nodes(job_desc, partitions)
  message.cpus_of_node = cpus_of_node(partitions)
  message.features = node_counts(job_desc)
  message.script, message.script_goes_on = head_of_script(job_desc)
  message.script_name = (message.script or message.script_goes_on) and script_name(job_desc)
  return message
end

-- A job that asks for no GPU and says nothing to us costs slurmctld nothing.
function request.concerns_us(message)
  if message.script or message.script_goes_on or (message.comment or ""):find("rad", 1, true) then
    return true
  end
  for _, name in ipairs({ "gres", "tres_per_job", "tres_per_task", "tres_per_socket" }) do
    local text = message[name] or ""
    if text:find("gpu", 1, true) or text:find("shard", 1, true) then
      return true
    end
  end
  return false
end

-- A count in a change; nil for "not given", as which the largest numbers of a type stand.
function request.count(job_desc, name)
  local count = field(job_desc, name)
  return type(count) == "number" and count < 65534 and count or nil
end

-- Whether a change touches what Slurm will give. "" in a text takes a part of the request away, so field() would not
-- do; the largest numbers of a type mean "not given".
function request.is_touched_by(job_desc)
  for _, name in ipairs(REQUEST) do
    local value = job_desc[name]
    if value ~= nil and not (type(value) == "number" and value >= 65534) then
      return true
    end
  end
  return false
end

return request
