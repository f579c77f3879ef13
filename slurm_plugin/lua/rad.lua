-- RAD's part of job_submit.lua: tell radd about a submission and apply its answer.
-- Whatever goes wrong here, the job goes on as it was submitted: no function of this module ever raises.

local fallback = require("rad_fallback")
local job = require("rad_job")
local json = require("rad_json")
local link = require("rad_link")
local request = require("rad_request")
local signed_booking = require("rad_signed_booking")

local rad = {}

rad.settings = {
  socket = "/run/rad/radd.sock",
  deadline_s = 0.1, -- slurmctld holds its locks while it waits for us
  proc = "/proc",
  trusted_uids = { [0] = true }, -- root and SlurmUser: their changes to a comment are taken as they are
}

local NO_COMMENT = " " -- "" would leave a job's comment as it is

local undecided = 0 -- submissions that radd did not answer since this file was loaded; reported to radd for the admin

local ok_settings, site = pcall(require, "rad_settings")
if ok_settings and type(site) == "table" then
  for name, value in pairs(site) do
    rad.settings[name] = value
  end
end

-- Where a job has no association, slurmctld takes errno after a change of partition or account for its result
-- (_retrieve_new_assoc in job_mgr.c, 22.05 to 26.05). What a library call left there must not refuse the change.
local has_errno, errno = pcall(require, "posix.errno")
local has_socket, socket = pcall(require, "socket")
local lookup_is_quick = true
local function clear_errno()
  if has_errno and errno.set_errno then
    errno.set_errno(0)
  elseif has_socket and lookup_is_quick then
    local start_s = socket.gettime()
    socket.dns.toip("localhost") -- from /etc/hosts; glibc leaves 0 after a lookup (__set_errno in nss/getXXbyYY_r.c)
    lookup_is_quick = math.abs(socket.gettime() - start_s) < rad.settings.deadline_s -- else it asks a server: once only
  end
end

local function log(text)
  pcall(slurm.log_info, "%s", "rad: " .. text)
end

-- Show a line to the user. Passed as an argument: a % in a format of its own would raise.
local function say(text)
  pcall(slurm.log_user, "%s", (tostring(text):gsub("%c", " ")))
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
  elseif reply.error or not request.is_of_radd(reply) then
    return nil, "radd: " .. tostring(reply.error or "another protocol version")
  end
  return reply
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
    job.set_fields(job_desc, reply.set)
    job.set_environment(job_desc, reply.env or {})
  end
  return slurm.SUCCESS
end

-- A job that radd did not decide: keep it from jobs that share if we can, and answer a user that gave directives.
local function go_on(job_desc, message)
  local reply = fallback.reply(rad.settings.socket, message)
  if reply then
    apply(job_desc, reply)
  end
  if message.script or (message.comment or ""):find("rad:", 1, true) then
    if reply then
      say("RAD: radd did not answer; the job gets a whole GPU; to share one, cancel it and resubmit later")
    else
      say("RAD: radd did not answer; the job was submitted unchanged; to share a GPU, cancel it and resubmit later")
    end
  end
end

-- For slurm_job_submit. Returns what that function must return.
function rad.submit(job_desc, part_list, submit_uid)
  local ok, result = pcall(function()
    signed_booking.drop(job_desc)
    local message = request.of(job_desc, part_list, submit_uid)
    if not request.concerns_us(message) then
      return slurm.SUCCESS
    end
    message.undecided = undecided
    message.new_controller = request.is_new_controller(rad.settings.proc) or nil
    local reply, problem, unanswered = ask(message)
    if reply then
      return apply(job_desc, reply)
    end
    log("not decided by radd: " .. problem)
    undecided = undecided + (unanswered and 1 or 0) -- what it refused stands in its log, and a user may send much of it
    go_on(job_desc, message)
    return slurm.SUCCESS
  end)
  if not ok then
    log("job submitted unchanged: " .. tostring(result))
    result = slurm.SUCCESS
  end
  return result
end

-- A note of our hooks: radd may not ask slurmctld for it while that waits for us.
local function is_note(job_desc)
  local text = job.field(job_desc, "admin_comment")
  return type(text) == "string" and text:sub(1, 4) == "rad:"
end

local function report_note(job_desc, job_rec)
  local _, problem = ask(request.message("modify", {
    user_id = job.field(job_rec, "user_id"), job_id = job.field(job_rec, "job_id"),
    comment = job.field(job_desc, "comment") or job.field(job_rec, "comment"),
    admin_comment = job.field(job_desc, "admin_comment"),
  }))
  if problem then
    log("radd did not hear of a change: " .. problem)
  end
end

-- A booking holds for the request that it was made for. One whose request changes is marked by radd, or dropped where
-- radd is away; the Prolog then asks Slurm what the job was given. Returns whether radd set what it requests.
local function mark_booking(job_desc, job_rec)
  local comment = job_desc.comment or job.field(job_rec, "comment") or ""
  if not signed_booking.is_in(comment) or not request.is_touched_by(job_desc) then
    return
  end
  local message = request.message("change", {
    user_id = job.field(job_rec, "user_id"), comment = comment,
    partition = job.field(job_desc, "partition") or job.field(job_rec, "partition"),
    gres = job.field(job_desc, "gres"), tres_per_job = job.field(job_desc, "tres_per_job"),
    tres_per_task = job.field(job_desc, "tres_per_task"), min_nodes = request.count(job_desc, "min_nodes"),
  })
  local reply, problem = ask(message)
  if reply and (reply.set and reply.set.comment or "") ~= "" then
    job.set_fields(job_desc, reply.set)
    return reply.set.gres ~= nil
  end
  log("a changed job's booking is dropped" .. (problem and ": " .. problem or ""))
  local words = signed_booking.words(comment)
  job_desc.comment = words ~= "" and words or NO_COMMENT
end

-- A change that clears what is requested by node leaves a GPU that was requested by job or task.
local function keep_gpu(job_desc, job_rec)
  if job_desc.gres == "" and signed_booking.is_not_by_node(job.field(job_rec, "comment") or "") then
    job_desc.gres = "" -- as a field, that is "not given"
  end
end

-- CPUs and memory for each GPU in a change of a job that has shards: Slurm takes them for gres/gpu alone. Those of the
-- node are as many (booking/gres_request.py).
local function keep_each(job_desc, job_rec)
  if not signed_booking.has_shards(job.field(job_rec, "comment") or "") then
    return
  end
  for each, of_node in pairs({ cpus_per_tres = "pn_min_cpus", mem_per_tres = "min_mem_per_node" }) do
    local count = (job.field(job_desc, each) or ""):match("^gres[:/]gpu[:=](%d+)$")
    if count then
      job_desc[each], job_desc[of_node] = "", count
    end
  end
end

-- One GPU in a change of a job that has it as shards: Slurm 22.05 refuses a request for gpu of a job that holds shards.
local function keep_shards(job_desc, job_rec)
  local comment = job.field(job_rec, "comment") or ""
  local shards = signed_booking.shards_of_whole(comment)
  if not shards then
    return
  end
  for _, name in ipairs({ "tres_per_job", not comment:find(":procs=", 1, true) and "tres_per_task" or nil }) do
    if fallback.is_one_gpu(job.field(job_desc, name) or "none", "") then
      job_desc[name] = "" -- as a field, that is "not given"
    end
  end
  local typed = job.field(job_desc, "gres")
  if type(typed) ~= "string" then
    return
  end
  local parts, found = {}, false
  for part in typed:gmatch("[^,]+") do
    local is_gpu = fallback.is_one_gpu(part, "")
    parts[#parts + 1] = is_gpu and string.format("shard:%d", shards) or part:gsub("^gres[:/]", "")
    found = found or is_gpu
  end
  if found then
    job_desc.gres = table.concat(parts, ",")
  end
end

-- For slurm_job_modify. Returns what that function must return.
function rad.modify(job_desc, job_rec, part_list, modify_uid)
  local ok, problem = pcall(function()
    local trusted = rad.settings.trusted_uids[modify_uid]
    if trusted and is_note(job_desc) then
      report_note(job_desc, job_rec)
      return
    elseif not trusted then
      signed_booking.keep(job_desc, job_rec)
    end
    keep_gpu(job_desc, job_rec)
    keep_each(job_desc, job_rec)
    if not mark_booking(job_desc, job_rec) then
      keep_shards(job_desc, job_rec)
    end
  end)
  if not ok then
    log("change refused: " .. tostring(problem)) -- rather than a booking that no longer holds
    return slurm.ERROR
  end
  clear_errno()
  return slurm.SUCCESS
end

return rad
