-- RAD's part of job_submit.lua: tell radd about a submission and apply its answer.
-- Whatever goes wrong here, the job goes on as it was submitted: no function of this module ever raises.

local json = require("rad_json")
local link = require("rad_link")

local rad = {}

rad.settings = {
  socket = "/run/rad/radd.sock",
  deadline_s = 0.1, -- slurmctld holds its locks while it waits for us
  trusted_uids = { [0] = true }, -- root and SlurmUser: their changes to a comment are taken as they are
}

local PROTOCOL = 1
local SCRIPT_HEAD = 65536
local COMMENT_LIMIT = 1023 -- Slurm keeps comments of up to 1,024 bytes, the closing zero byte included
local STAMP = "rad%d:%a+:[%w=:.]+"
local LONGEST = { comment = 2048 } -- what is longer is no request that Slurm would take
local LONGEST_OTHER = 1024
local LONGEST_FILE = 65536
local NO_COMMENT = " " -- "" would leave a job's comment as it is

local undecided = 0 -- submissions that radd did not answer since this file was loaded; radd is told, an admin asks radd

-- What radd hears of a submission: job_desc fields under their own names.
local TOLD = {
  "partition", "gres", "tres_per_job", "tres_per_task", "tres_per_socket", "tres_bind", "tres_freq",
  "cpus_per_tres", "mem_per_tres", "ntasks_per_gpu", "ntasks_per_node", "min_nodes", "num_tasks", "cpus_per_task",
  "comment", "container",
}

-- What a change must not touch without the booking being looked at again.
local REQUEST = {
  "gres", "tres_per_job", "tres_per_task", "tres_per_socket", "tres_bind", "tres_freq", "cpus_per_tres", "mem_per_tres",
  "partition", "min_nodes", "max_nodes", "num_tasks", "ntasks_per_node", "ntasks_per_gpu",
}

-- What radd may change. Anything else in a reply is a fault, and the reply is ignored.
local SETTABLE = {
  gres = true, tres_per_job = true, tres_per_task = true, tres_bind = true, cpus_per_tres = true,
  mem_per_tres = true, cpus_per_task = true, min_cpus = true, min_mem_per_node = true, min_nodes = true,
  max_nodes = true, num_tasks = true, ntasks_per_node = true, gres_flags = true, comment = true, admin_comment = true,
}

-- The words of --gres-flags, and Slurm's names for their bits in job_desc.bitflags.
local GRES_FLAGS = { ["one-task-per-sharing"] = "GRES_ONE_TASK_PER_SHARING" }

local ok_settings, site = pcall(require, "rad_settings")
if ok_settings and type(site) == "table" then
  for name, value in pairs(site) do
    rad.settings[name] = value
  end
end

local function log(text)
  pcall(slurm.log_info, "%s", "rad: " .. text)
end

-- Show a line to the user. Passed as an argument: a % in a format of its own would raise.
local function say(text)
  pcall(slurm.log_user, "%s", (tostring(text):gsub("%c", " ")))
end

local function field(record, name)
  local ok, value = pcall(function()
    return record[name]
  end)
  if ok and value ~= "" then
    return value
  end
  return nil
end

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
  if not head:find("#RAD", 1, true) then
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

local function describe(job_desc, part_list, submit_uid)
  local message = { v = PROTOCOL, op = "submit" }
  message.user_id = field(job_desc, "user_id") or submit_uid -- root may submit for somebody else
  for _, name in ipairs(TOLD) do
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
  message.undecided = undecided
  return message
end

-- A job that asks for no GPU and says nothing to us costs slurmctld nothing.
local function concerns_us(message)
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

-- Ask radd. Returns its reply, or nil, what is wrong, and whether it gave no answer at all.
local function ask(message)
  local line, problem = link.ask(rad.settings, json.encode(message) .. "\n", message.user_id)
  if not line then
    return nil, problem, true
  end
  local reply, fault = json.decode(line)
  if type(reply) ~= "table" then
    return nil, "radd's reply: " .. tostring(fault)
  elseif reply.error or reply.v ~= PROTOCOL then
    return nil, "radd: " .. tostring(reply.error or "another protocol version")
  end
  return reply
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

-- Set all fields of a job, or none of them.
local function set_fields(job_desc, changes)
  local before = {}
  for name, value in pairs(changes) do
    if not SETTABLE[name] or type(value) ~= "string" then
      error("radd may not set " .. tostring(name), 0)
    end
    before[name] = field(job_desc, name) or ""
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

-- Blank the variables that name GPUs, where the job has them. salloc and srun send no environment.
local function set_environment(job_desc, changes)
  pcall(function()
    for name, value in pairs(changes) do
      if (job_desc.environment[name] or "") ~= "" then
        job_desc.environment[name] = value
      end
    end
  end)
end

local function apply(job_desc, reply)
  if reply.log then
    log(reply.log)
  end
  for _, text in ipairs(reply.say or {}) do
    say(text)
  end
  if type(reply.refuse) == "string" then
    say(reply.refuse)
    return slurm.ESLURM_INVALID_GRES or slurm.ERROR
  end
  if next(reply.set or {}) then
    set_fields(job_desc, reply.set)
    set_environment(job_desc, reply.env or {})
  end
  return slurm.SUCCESS
end

local function without_stamps(comment)
  return (comment:gsub("%s*" .. STAMP, ""):gsub("^%s+", ""):gsub("rad(%d):", "rad-%1:"))
end

-- A booking that the user brings along is another job's: take it away before anyone believes it.
local function drop_stamps(job_desc)
  local comment = field(job_desc, "comment")
  if type(comment) == "string" and comment:find("rad%d:") then
    job_desc.comment = without_stamps(comment)
  end
end

-- What radd left for the time that it is away (radd/fallback.py); nil if it left nothing, or too long ago.
local function fallback_settings()
  local file = io.open((rad.settings.socket:gsub("[^/]*$", "")) .. "radd/fallback.json", "r")
  local left = file and json.decode(file:read(LONGEST_FILE) or "")
  if file then
    file:close()
  end
  if type(left) == "table" and left.v == 1 and os.time() < left.until_s then
    return left
  end
  return nil
end

-- Whether a request is for one GPU and nothing else: "gres:gpu", "gres/gpu:1", "gpu:a100:1" of the partition's type.
local function is_one_gpu(text, gpu_type)
  local rest = text:gsub("^gres[:/]", ""):match("^gpu(.*)$")
  if gpu_type ~= "" and rest and rest:sub(1, #gpu_type + 1) == ":" .. gpu_type then
    rest = rest:sub(#gpu_type + 2)
  end
  return rest == "" or rest == ":1" or rest == "=1"
end

-- Without radd, a job that asks for one GPU gets it as all shards of a GPU, where Slurm needs that to keep it from
-- jobs that share. Nothing is signed: the Prolog asks Slurm. Any other request goes on as it was submitted. Returns
-- whether the job was changed.
local function fall_back(job_desc, message)
  local left = fallback_settings()
  local partition = left and left.partitions[message.partition or left.default_partition]
  local per_node, per_job = message.gres, message.tres_per_job
  local as_it_is = message.heterogeneous or message.recurs or message.interactive or message.whole_nodes
  if not partition or as_it_is or (per_node and per_job) then
    return false
  end
  local others = { "tres_per_task", "tres_per_socket", "tres_bind", "tres_freq", "cpus_per_tres", "mem_per_tres" }
  for _, name in ipairs(others) do
    if message[name] then
      return false
    end
  end
  local nodes, per_gpu = message.min_nodes or 1, message.ntasks_per_gpu or 0
  local one_node = nodes == 1 or nodes >= 65534
  local one_task = per_gpu <= 0 or per_gpu >= 65534
  if not one_node or not one_task or not is_one_gpu(per_node or per_job or "", partition.gpu_type) then
    return false
  end
  local changes = { gres = "shard:" .. string.format("%d", partition.shards) }
  if per_job then
    changes.tres_per_job, changes.min_nodes, changes.max_nodes = "", "1", "1"
  end
  local blank = {}
  for _, name in ipairs(left.environment) do
    blank[name] = ""
  end
  set_fields(job_desc, changes)
  set_environment(job_desc, blank)
  log("without radd: one GPU becomes " .. changes.gres)
  return true
end

-- A job that radd did not decide: keep it from jobs that share if we can, and tell a user who said something to us.
local function go_on(job_desc, message, unanswered)
  undecided = undecided + (unanswered and 1 or 0) -- what it refused stands in its log, and a user may send much of it
  local changed = fall_back(job_desc, message)
  if message.script or (message.comment or ""):find("rad:", 1, true) then
    if changed then
      say("RAD: radd made no decision; the job reserves one GPU for itself")
    else
      say("RAD: radd made no decision; the job goes on as it was submitted")
    end
  end
end

-- For slurm_job_submit. Returns what that function must return.
function rad.submit(job_desc, part_list, submit_uid)
  local ok, result = pcall(function()
    drop_stamps(job_desc)
    local message = describe(job_desc, part_list, submit_uid)
    if not concerns_us(message) then
      return slurm.SUCCESS
    end
    local reply, problem, unanswered = ask(message)
    if not reply then
      log("not decided by radd: " .. problem)
      go_on(job_desc, message, unanswered)
      return slurm.SUCCESS
    end
    return apply(job_desc, reply)
  end)
  if not ok then
    log("job left as it is: " .. tostring(result))
    return slurm.SUCCESS
  end
  return result
end

-- The user's words may change; the booking in the comment may not.
local function keep_stamp(job_desc, job_rec)
  local comment = job_desc.comment -- "" clears it, so field() would not do
  if comment == nil then
    return
  end
  local stamp = (field(job_rec, "comment") or ""):match(STAMP) or ""
  local words = without_stamps(comment):sub(1, COMMENT_LIMIT - #stamp - 1)
  job_desc.comment = (words .. " " .. stamp):gsub("^%s+", ""):gsub("%s+$", "")
end

-- A note of our hooks: radd may not ask slurmctld for it while that waits for us.
local function is_note(job_desc)
  local text = field(job_desc, "admin_comment")
  return type(text) == "string" and text:sub(1, 4) == "rad:"
end

local function tell_note(job_desc, job_rec)
  local _, problem = ask({
    v = PROTOCOL, op = "modify", user_id = field(job_rec, "user_id"), job_id = field(job_rec, "job_id"),
    comment = field(job_desc, "comment") or field(job_rec, "comment"),
    admin_comment = field(job_desc, "admin_comment"),
  })
  if problem then
    log("radd did not hear of a change: " .. problem)
  end
end

-- Whether a change touches what Slurm will give. "" in a text takes a part of the request away, so field() would not
-- do; the largest numbers of a type mean "not given".
local function touches_request(job_desc)
  for _, name in ipairs(REQUEST) do
    local value = job_desc[name]
    if value ~= nil and not (type(value) == "number" and value >= 65534) then
      return true
    end
  end
  return false
end

-- A booking holds for the request that it was made for. One whose request changes is marked by radd, or dropped where
-- radd is away; the Prolog then asks Slurm what the job was given.
local function mark_booking(job_desc, job_rec)
  local comment = job_desc.comment or field(job_rec, "comment") or ""
  if not comment:find(STAMP) or not touches_request(job_desc) then
    return
  end
  local reply, problem = ask({ v = PROTOCOL, op = "change", user_id = field(job_rec, "user_id"), comment = comment })
  local marked = reply and reply.set and reply.set.comment
  if type(marked) == "string" and marked ~= "" then
    job_desc.comment = marked
    return
  end
  log("a changed job's booking is dropped" .. (problem and ": " .. problem or ""))
  local words = without_stamps(comment)
  job_desc.comment = words ~= "" and words or NO_COMMENT
end

-- For slurm_job_modify. Returns what that function must return.
function rad.modify(job_desc, job_rec, part_list, modify_uid)
  local ok, problem = pcall(function()
    local trusted = rad.settings.trusted_uids[modify_uid]
    if trusted and is_note(job_desc) then
      tell_note(job_desc, job_rec)
      return
    elseif not trusted then
      keep_stamp(job_desc, job_rec)
    end
    mark_booking(job_desc, job_rec)
  end)
  if not ok then
    log("change refused: " .. tostring(problem)) -- rather than a booking that no longer holds
    return slurm.ERROR
  end
  return slurm.SUCCESS
end

return rad
