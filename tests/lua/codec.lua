-- Decodes each line of stdin and prints it encoded again, or what is wrong with it.

package.path = arg[1] .. "/?.lua;" .. package.path
local json = require("rad_json")

for line in io.lines() do
  local value, problem = json.decode(line)
  print(problem and "error " .. problem or "value " .. json.encode(value))
  io.stdout:flush()
end
