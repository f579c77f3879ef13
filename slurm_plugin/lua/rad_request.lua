-- What radd hears of a submission, and what of a change is a change of the request.

local field = require("rad_job").field

local request = {}

local PROTOCOL = 1
local SCRIPT_HEAD = 65536
local LONGEST = { comment = 2048 } -- what is longer is no request that Slurm would take
local LONGEST_OTHER = 1024

-- job_desc fields, which radd hears of under their own names.
local REPORTED = {
  "partition", "gres", "tres_per_job", "tres_per_task", "tres_per_socket", "tres_bind", "tres_freq",
  "cpus_per_tres", "mem_per_tres", "ntasks_per_gpu", "ntasks_per_node", "min_nodes", "num_tasks", "cpus_per_task",
  "comment", "container",
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
  return head:gsub("[%z\1-\8\11\12\14-\31\127]", "?"), more -- escaped, each of them would be six bytes
end

local function script_name(job_desc)
  local ok, name = pcall(function()
    return job_desc.argv[0]
  end)
  return ok and type(name) == "string" and name:sub(-LONGEST_OTHER):gsub("%c", "?") or nil
end

-- Whether a job gets whole nodes: by --exclusive, or because one of its partitions gives no others
-- (OverSubscribe=EXCLUSIVE). On such a node Slurm starts no job that asks for shards: it would wait for ever.
local function takes_whole_nodes(job_desc, part_list)
  if job_desc.shared == 0 then
    return true
  end
  local named = field(job_desc, "partition")
  for name, partition in pairs(part_list or {}) do
    local meant
    if named then
      meant = ("," .. named .. ","):find("," .. name .. ",", 1, true)
    else
      meant = partition.flag_default == 1
    end
    if meant and partition.max_share == 0 then
      return true
    end
  end
  return false
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

local SETTLED_S = 10 -- Slurm 22.05.8 took shards again 4 s after its start, when the first node had come
local TICKS_PER_S = 100 -- USER_HZ, the same on every Linux: proc(5)
local settled = false

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
  if settled then
    return false
  end
  local ticks = number_in(proc .. "/self/stat", "^.*%)" .. (" %S+"):rep(19) .. " (%d+)") -- field 22
  local now_s = number_in(proc .. "/uptime", "^(%S+)")
  local age_s = ticks and now_s and now_s - ticks / TICKS_PER_S
  settled = not age_s or age_s < 0 or age_s > SETTLED_S -- below 0: LXC counts /proc/uptime from the container's start
  return not settled
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
  message.whole_nodes = takes_whole_nodes(job_desc, part_list)
  message.script, message.script_goes_on = head_of_script(job_desc)
  message.script_name = message.script and script_name(job_desc)
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
