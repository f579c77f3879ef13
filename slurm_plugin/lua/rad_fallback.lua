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
function fallback.is_one_gpu(text, gpu_type)
  local rest = text:gsub("^gres[:/]", ""):match("^gpu(.*)$")
  if gpu_type ~= "" and rest and rest:sub(1, #gpu_type + 1) == ":" .. gpu_type then
    rest = rest:sub(#gpu_type + 2)
  end
  return rest == "" or rest == ":1" or rest == "=1"
end

-- A number of a message; 0 for "not given".
local function count_of(message, name)
  local count = message[name] or 0
  return count < 65534 and count or 0
end

-- Whether Slurm gives a job one node, as far as its options show (booking/request.py: _nodes).
local function takes_one_node(message)
  local tasks, tasks_of_node = count_of(message, "num_tasks"), count_of(message, "ntasks_per_node")
  local cpus = tasks * math.max(1, count_of(message, "cpus_per_task"))
  return count_of(message, "min_nodes") <= 1 and count_of(message, "max_nodes") <= 1 and not message.features
    and (tasks_of_node == 0 or tasks <= tasks_of_node)
    and (tasks <= 1 or cpus <= (message.cpus_of_node or cpus))
end

-- Whether shards can stand for what a message asks for.
local function can_share(message, partition)
  if message.heterogeneous or message.recurs or message.interactive or message.whole_nodes then
    return false
  elseif message.new_controller then -- one that takes no request for shards yet
    return false
  elseif message.reserves_parts or message.container then -- no shards there (booking/request.py: _gpu_only_option)
    return false
  end
  for _, name in ipairs(NO_SHARDS) do
    if message[name] then
      return false
    end
  end
  local per_node, per_job = message.gres, message.tres_per_job
  local requested = not (per_node and per_job) and (per_node or per_job) or ""
  return takes_one_node(message) and count_of(message, "ntasks_per_gpu") <= 0
    and fallback.is_one_gpu(requested, partition.gpu_type)
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
    changes.tres_per_job = ""
    if math.max(count_of(message, "num_tasks"), count_of(message, "ntasks_per_node")) > 1 then
      changes.min_nodes, changes.max_nodes = "1", "1"
    end
  end
  local blank = {}
  for _, name in ipairs(left.environment) do
    blank[name] = ""
  end
  return { set = changes, env = blank, log = "without radd: one GPU becomes " .. changes.gres }
end

return fallback
