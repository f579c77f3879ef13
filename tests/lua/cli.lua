-- Runs cli_filter's hook outside Slurm: one JSON command a line on stdin, one JSON result a line on stdout.
-- Arguments: the folder of the shims, the settings as JSON.

package.path = arg[1] .. "/?.lua;" .. package.path
local json = require("rad_json")
local settings = json.decode(arg[2])
package.preload["rad_settings"] = function()
  return settings
end

local said
slurm = { SUCCESS = 0, ERROR = -1 }
rawset(io, "stderr", {
  write = function(_, ...)
    said[#said + 1] = table.concat({ ... }):gsub("\n$", "")
  end,
})

-- As in Slurm: options are read and written through a metatable, and only as text.
local function options_table(options, argv)
  return setmetatable({}, {
    __index = function(_, name)
      if name == "argv" then
        return argv
      end
      return options[name]
    end,
    __newindex = function(_, name, value)
      assert(type(value) == "string", "luaL_checkstring")
      options[name] = value
    end,
  })
end

local cli = require("rad_cli")

for line in io.lines() do
  local command = json.decode(line)
  said = {}
  local ok, rc = pcall(cli.pre_submit, options_table(command.options, command.argv or {}), command.offset or 0)
  print(json.encode({ ok = ok, rc = rc, options = command.options, said = said }))
  io.stdout:flush()
end
