-- Ask radd: one line each way over a unix socket, within a deadline, through luasocket or lua-posix.
-- slurmctld holds its locks meanwhile, so requests to a radd that does not answer are soon paused. One that is not
-- running affects every user, and a try costs little: it is repeated so soon that the first job after its restart
-- reaches it. One that takes a request and does not answer may be busy with it, so only that user's requests are
-- withheld, unless it answers no user.

local link = {}

local REQUEST_LIMIT = 262144 -- both as in radd/protocol/lines.py
local REPLY_LIMIT = 65536
local FAILURES_IN_A_ROW = 3
local USERS_IN_A_ROW = 2 -- so many users without an answer between them: it is not their requests
local PAUSE_S = 30
local FD_SETSIZE = 1024 -- select cannot wait for larger descriptors
local AWAY_SHARE = 300 -- a radd that is not there costs slurmctld one part in so many of its time: 0.1 s in 30

-- Failures in a row: of each user's requests by uid, and of radd itself; and which failed since radd last answered.
local of_user, of_all = {}, { failures = 0 }
local since_answer, users_since_answer = {}, 0

local function open(breaker, now_s)
  return breaker ~= nil
    and breaker.failures >= FAILURES_IN_A_ROW
    and math.abs(now_s - breaker.paused_s) < breaker.pause_s
end

local function failed(breaker, now_s, pause_s)
  breaker.failures = breaker.failures + 1
  breaker.paused_s, breaker.pause_s = now_s, pause_s
end

local function note_failure(uid, connected, now_s, cost_s)
  local pause_s = connected and PAUSE_S or math.min(PAUSE_S, AWAY_SHARE * math.abs(cost_s))
  of_user[uid] = of_user[uid] or { failures = 0 }
  failed(of_user[uid], now_s, pause_s)
  if not since_answer[uid] then
    since_answer[uid] = true
    users_since_answer = users_since_answer + 1
  end
  if not connected or users_since_answer >= USERS_IN_A_ROW then
    failed(of_all, now_s, pause_s)
  end
end

local function note_answer(uid)
  of_user[uid] = nil
  of_all.failures = 0
  since_answer, users_since_answer = {}, 0
end

-- Seconds until a point in time, never more than the whole span: the clock may be set back meanwhile.
local function left_s(now_s, end_s, span_s)
  return math.min(math.max(end_s - now_s, 0.001), span_s)
end

-- Each transport returns { now_s = function, exchange = function }, or nil where its library is missing.

local function luasocket()
  local has_core, socket = pcall(require, "socket")
  local has_unix, unix = pcall(require, "socket.unix")
  if not has_core or not has_unix then
    return nil
  end
  local make = type(unix) == "table" and (unix.stream or unix.tcp or getmetatable(unix).__call) or unix
  local function talk(connection, path, line, budget_s)
    local end_s = socket.gettime() + budget_s
    local function step(method, ...)
      connection:settimeout(left_s(socket.gettime(), end_s, budget_s), "t")
      return connection[method](connection, ...)
    end
    local ok, problem = step("connect", path)
    if not ok then
      return nil, problem, false
    end
    ok, problem = step("send", line)
    if not ok then
      return nil, problem, true
    end
    if connection:getfd() < FD_SETSIZE then -- else `receive` meets EAGAIN, which stays in errno
      socket.select({ connection }, nil, left_s(socket.gettime(), end_s, budget_s))
    end
    local reply, why, partial = step("receive", "*l")
    if #(reply or partial) > REPLY_LIMIT then
      return nil, "reply too long", true
    end
    return reply and reply .. "\n" or why == "closed" and partial or nil, why, true
  end
  return {
    now_s = socket.gettime,
    exchange = function(path, line, budget_s)
      local connection = assert(make())
      local reply, problem, connected = talk(connection, path, line, budget_s)
      connection:close()
      return reply, problem, connected
    end,
  }
end

local function luaposix()
  local has_socket, socket = pcall(require, "posix.sys.socket")
  local has_unistd, unistd = pcall(require, "posix.unistd")
  local has_time, time = pcall(require, "posix.time")
  if not (has_socket and has_unistd and has_time) then
    return nil
  end
  local function now_s()
    local now = time.clock_gettime(time.CLOCK_MONOTONIC)
    return now.tv_sec + now.tv_nsec / 1e9
  end
  local function talk(connection, path, line, budget_s)
    local end_s = now_s() + budget_s
    local function limit(option)
      local left = left_s(now_s(), end_s, budget_s)
      socket.setsockopt(connection, socket.SOL_SOCKET, option, math.floor(left), math.floor(left % 1 * 1e6))
    end
    limit(socket.SO_SNDTIMEO)
    local ok, problem = socket.connect(connection, { family = socket.AF_UNIX, path = path })
    if not ok then
      return nil, problem, false
    end
    local sent = 0
    while sent < #line do
      limit(socket.SO_SNDTIMEO)
      local count, why = socket.send(connection, line:sub(sent + 1))
      if not count then
        return nil, why, true
      end
      sent = sent + count
    end
    local parts, size = {}, 0
    while size <= REPLY_LIMIT do
      limit(socket.SO_RCVTIMEO)
      local part, why = socket.recv(connection, REPLY_LIMIT)
      if not part then
        return nil, why, true
      elseif part == "" then
        return table.concat(parts), nil, true
      elseif now_s() > end_s then
        return nil, "timeout", true
      end
      parts[#parts + 1] = part
      size = size + #part
    end
    return nil, "reply too long", true
  end
  return {
    now_s = now_s,
    exchange = function(path, line, budget_s)
      local connection = assert(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0))
      local ok, reply, problem, connected = pcall(talk, connection, path, line, budget_s)
      unistd.close(connection)
      if not ok then
        return nil, reply, true
      end
      return reply, problem, connected
    end,
  }
end

local transport = luasocket() or luaposix() -- now, since a search for modules leaves its errno, too

-- Send a line for a user and return radd's line, or nil and why there is none. Never raises.
function link.ask(settings, line, uid)
  uid = uid or 0
  if not transport then
    return nil, "neither luasocket nor lua-posix is installed"
  elseif #line > REQUEST_LIMIT then
    return nil, string.format("a request of %d bytes", #line)
  end
  local now_s = transport.now_s()
  if open(of_all, now_s) or open(of_user[uid], now_s) then
    return nil, "radd did not answer lately"
  end
  local ok, reply, problem, connected = pcall(transport.exchange, settings.socket, line, settings.deadline_s)
  if not ok then
    reply, problem, connected = nil, reply, true
  elseif reply and reply:sub(-1) ~= "\n" then
    reply, problem = nil, "half a line"
  end
  if reply then
    note_answer(uid)
    return reply
  end
  local after_s = transport.now_s()
  note_failure(uid, connected, after_s, after_s - now_s)
  return nil, string.format("%s: %s", settings.socket, tostring(problem))
end

return link
