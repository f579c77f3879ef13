-- The signed booking in a job's comment (comments/signed_comment.py): the user's words may change, the booking may not.

local job = require("rad_job")

local stamp = {}

local STAMP = "rad%d:%a+:[%w=:.]+"
local COMMENT_LIMIT = 1023 -- Slurm keeps comments of up to 1,024 bytes, the closing zero byte included

-- Whether a comment holds a booking.
function stamp.is_in(comment)
  return comment:find(STAMP) ~= nil
end

-- The user's words of a comment; what only looks like the start of a booking looks like none any more. slurmctld waits
-- for us, and a user chooses how much white space there is: no pattern here looks at it twice.
function stamp.words(comment)
  local parts, at = {}, 1
  for first, past in comment:gmatch("()" .. STAMP .. "()") do
    parts[#parts + 1] = comment:sub(at, first - 1):match("^.*%S")
    at = past
  end
  parts[#parts + 1] = comment:sub(at)
  return (table.concat(parts):gsub("^%s+", ""):gsub("rad(%d):", "rad-%1:"))
end

-- A booking that the user brings along is another job's: take it away before anyone believes it.
function stamp.drop(job_desc)
  local comment = job.field(job_desc, "comment")
  if type(comment) == "string" and comment:find("rad%d:") then
    job_desc.comment = stamp.words(comment)
  end
end

-- A change of the comment keeps the booking that the job has.
function stamp.keep(job_desc, job_rec)
  local comment = job_desc.comment -- "" clears it, so field() would not do
  if comment == nil then
    return
  end
  local kept = (job.field(job_rec, "comment") or ""):match(STAMP) or ""
  local words = stamp.words(comment):sub(1, COMMENT_LIMIT - #kept - 1)
  job_desc.comment = (words .. " " .. kept):gsub("^%s+", ""):gsub("%s+$", "")
end

return stamp
