-- A small strict JSON codec for Lua 5.1 to 5.4: messages between the shims and radd, nothing more.
-- Strings are bytes, as in Slurm; null becomes nil.

local json = {}

local MAX_DEPTH = 8
local ESCAPES = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }
local UNESCAPES = { ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }

local function escape(character)
  return ESCAPES[character] or string.format("\\u%04x", string.byte(character))
end

local function encode_string(text)
  return '"' .. text:gsub('[%z\1-\31"\\\127]', escape) .. '"'
end

local function encode_number(number)
  if number ~= number or number == math.huge or number == -math.huge then
    return "null"
  end
  if number == math.floor(number) and math.abs(number) < 2 ^ 53 then
    return string.format("%d", number)
  end
  return string.format("%.17g", number)
end

-- Encode a value. Tables are objects unless they have an element 1.
function json.encode(value)
  local kind = type(value)
  if kind == "string" then
    return encode_string(value)
  elseif kind == "number" then
    return encode_number(value)
  elseif kind == "boolean" then
    return tostring(value)
  elseif kind == "table" then
    local parts = {}
    if value[1] ~= nil then
      for _, element in ipairs(value) do
        parts[#parts + 1] = json.encode(element)
      end
      return "[" .. table.concat(parts, ",") .. "]"
    end
    for name, element in pairs(value) do
      parts[#parts + 1] = encode_string(tostring(name)) .. ":" .. json.encode(element)
    end
    return "{" .. table.concat(parts, ",") .. "}"
  end
  return "null"
end

local function fail(at, what)
  error({ json = string.format("byte %d: %s", at, what) }, 0)
end

local function utf8_bytes(code)
  if code < 0x80 then
    return string.char(code)
  elseif code < 0x800 then
    return string.char(0xC0 + math.floor(code / 0x40), 0x80 + code % 0x40)
  elseif code < 0x10000 then
    return string.char(0xE0 + math.floor(code / 0x1000), 0x80 + math.floor(code / 0x40) % 0x40, 0x80 + code % 0x40)
  end
  return string.char(
    0xF0 + math.floor(code / 0x40000),
    0x80 + math.floor(code / 0x1000) % 0x40,
    0x80 + math.floor(code / 0x40) % 0x40,
    0x80 + code % 0x40
  )
end

local function skip_space(text, at)
  return text:find("[^ \t\r\n]", at) or #text + 1
end

local function decode_unicode(text, at)
  local code = tonumber(text:match("^%x%x%x%x", at) or fail(at, "bad \\u"), 16)
  at = at + 4
  if code >= 0xD800 and code < 0xDC00 then
    local low = tonumber(text:match("^\\u([dD][c-fC-F]%x%x)", at) or fail(at, "half a surrogate pair"), 16)
    return utf8_bytes(0x10000 + (code - 0xD800) * 0x400 + (low - 0xDC00)), at + 6
  elseif code >= 0xDC00 and code < 0xE000 then
    fail(at, "half a surrogate pair")
  end
  return utf8_bytes(code), at
end

local function decode_string(text, at)
  local parts = {}
  at = at + 1
  while true do
    local stop = text:find('["\\%z\1-\31]', at) or fail(at, "unfinished string")
    parts[#parts + 1] = text:sub(at, stop - 1)
    local mark = text:sub(stop, stop)
    if mark == '"' then
      return table.concat(parts), stop + 1
    elseif mark ~= "\\" then
      fail(stop, "control character in a string")
    end
    local kind = text:sub(stop + 1, stop + 1)
    if kind == "u" then
      parts[#parts + 1], at = decode_unicode(text, stop + 2)
    else
      parts[#parts + 1] = UNESCAPES[kind] or fail(stop, "bad escape")
      at = stop + 2
    end
  end
end

local decode_value

local function decode_members(text, at, close, member)
  at = skip_space(text, at + 1)
  if text:sub(at, at) == close then
    return at + 1
  end
  while true do
    at = skip_space(text, member(skip_space(text, at)))
    local mark = text:sub(at, at)
    if mark == close then
      return at + 1
    elseif mark ~= "," then
      fail(at, "expected , or " .. close)
    end
    at = at + 1
  end
end

local function decode_object(text, at, depth)
  local object = {}
  at = decode_members(text, at, "}", function(start)
    if text:sub(start, start) ~= '"' then
      fail(start, "expected a name")
    end
    local name, after = decode_string(text, start)
    after = skip_space(text, after)
    if text:sub(after, after) ~= ":" then
      fail(after, "expected :")
    end
    object[name], after = decode_value(text, skip_space(text, after + 1), depth)
    return after
  end)
  return object, at
end

local function decode_array(text, at, depth)
  local array, count = {}, 0
  at = decode_members(text, at, "]", function(start)
    local value, after = decode_value(text, start, depth)
    count = count + 1
    array[count] = value
    return after
  end)
  return array, at
end

local WORDS = { t = { "true", true }, f = { "false", false }, n = { "null", nil } }

decode_value = function(text, at, depth)
  if depth == 0 then
    fail(at, "nested too deep")
  end
  local first = text:sub(at, at)
  if first == '"' then
    return decode_string(text, at)
  elseif first == "{" then
    return decode_object(text, at, depth - 1)
  elseif first == "[" then
    return decode_array(text, at, depth - 1)
  elseif WORDS[first] then
    local word = WORDS[first]
    if text:sub(at, at + #word[1] - 1) ~= word[1] then
      fail(at, "unknown word")
    end
    return word[2], at + #word[1]
  end
  local number = text:match("^-?%d+%.?%d*[eE]?[+-]?%d*", at)
  local value = number and tonumber(number) or fail(at, "unexpected text")
  return value, at + #number
end

-- Decode a text. Returns the value, or nil and what is wrong with it.
function json.decode(text)
  local ok, value = pcall(function()
    local decoded, at = decode_value(text, skip_space(text, 1), MAX_DEPTH)
    if skip_space(text, at) <= #text then
      fail(at, "text after the value")
    end
    return decoded
  end)
  if ok then
    return value
  end
  return nil, type(value) == "table" and value.json or tostring(value)
end

return json
