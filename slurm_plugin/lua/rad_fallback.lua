-- The reply to a submission that radd does not answer, by what it left for that time (radd/protocol/fallback.py).
-- A job that asks for one GPU gets it as all shards of a GPU, where Slurm needs that to keep it from jobs that share.
-- Nothing is signed: the Prolog asks Slurm. Any other request goes on as it was submitted.

local json = require("rad_json")

local fallback = {}

local LONGEST_FILE = 65536
local NO_SHARDS = { "tres_per_task", "tres_per_socket", "tres_bind", "tres_freq", "cpus_per_tres", "mem_per_tres" }

-- What radd left; nil if it left nothing, or too long ago.
local function left_by_radd(socket)
  local file = io.open((socket:gsub("[^/]*$", "")) .. "radd/fallback.json", "r")
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

-- Whether shards can stand for what a message asks for.
local function can_share(message, partition)
  if message.heterogeneous or message.recurs or message.interactive or message.whole_nodes then
    return false
  elseif message.new_controller then -- one that takes no request for shards yet
    return false
  end
  for _, name in ipairs(NO_SHARDS) do
    if message[name] then
      return false
    end
  end
  local nodes, per_gpu = message.min_nodes or 1, message.ntasks_per_gpu or 0
  local one_node = nodes == 1 or nodes >= 65534
  local one_task = per_gpu <= 0 or per_gpu >= 65534
  local per_node, per_job = message.gres, message.tres_per_job
  local asked = not (per_node and per_job) and (per_node or per_job) or ""
  return one_node and one_task and is_one_gpu(asked, partition.gpu_type)
end

-- The reply to a message, as radd's would be; nil where the job goes on as it was submitted.
function fallback.reply(socket, message)
  local left = left_by_radd(socket)
  local partition = left and left.partitions[message.partition or left.default_partition]
  if not partition or not can_share(message, partition) then
    return nil
  end
  local changes = { gres = "shard:" .. string.format("%d", partition.shards) }
  if message.tres_per_job then
    changes.tres_per_job, changes.min_nodes, changes.max_nodes = "", "1", "1"
  end
  local blank = {}
  for _, name in ipairs(left.environment) do
    blank[name] = ""
  end
  return { set = changes, env = blank, log = "without radd: one GPU becomes " .. changes.gres }
end

return fallback
