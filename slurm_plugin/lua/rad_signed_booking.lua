-- The signed booking in a job's comment (comments/signed_comment.py): the user's words may change, the booking may not.

local job = require("rad_job")

local signed_booking = {}

local BOOKING = "rad%d:%a+:[%w=:.]+"
local COMMENT_LIMIT = 1023 -- Slurm keeps comments of up to 1,024 bytes, the closing zero byte included

-- Whether a comment holds a booking.
function signed_booking.is_in(comment)
  return comment:find(BOOKING) ~= nil
end

-- How many shards stand for the one whole GPU of a job, by its comment; nil if none do.
function signed_booking.shards_of_whole(comment)
  local shards = tonumber(comment:match("rad%d:whole:gpus=1:[%w=:.]*ask=(%d+):"))
  return shards and shards > 0 and shards or nil
end

-- Whether shards stand for one GPU of a job, by its comment.
function signed_booking.has_shards(comment)
  return (comment:match(BOOKING) or ""):find("^rad%d:%a+:gpus=1:.*ask=%d") ~= nil
end

-- Whether shards by node stand for what the user requested by job or task, by the job's comment.
function signed_booking.is_not_by_node(comment)
  return (comment:match(BOOKING) or ""):find(":node=0:", 1, true) ~= nil
end

-- The user's words of a comment; what only looks like the start of a booking looks like none any more. slurmctld waits
-- for us, and a user chooses how much white space there is: no pattern here looks at it twice.
function signed_booking.words(comment)
  local parts, at = {}, 1
  for first, past in comment:gmatch("()" .. BOOKING .. "()") do
    parts[#parts + 1] = comment:sub(at, first - 1):match("^.*%S")
    at = past
  end
  parts[#parts + 1] = comment:sub(at)
  return (table.concat(parts):gsub("^%s+", ""):gsub("rad(%d):", "rad-%1:"))
end

-- A booking that the user brings along is another job's: take it away before anyone believes it.
function signed_booking.drop(job_desc)
  local comment = job.field(job_desc, "comment")
  if type(comment) == "string" and comment:find("rad%d:") then
    job_desc.comment = signed_booking.words(comment)
  end
end

-- A change of the comment keeps the booking that the job has.
function signed_booking.keep(job_desc, job_rec)
  local comment = job_desc.comment -- "" clears it, so field() would not do
  if comment == nil then
    return
  end
  local kept = (job.field(job_rec, "comment") or ""):match(BOOKING) or ""
  local words = signed_booking.words(comment):sub(1, COMMENT_LIMIT - #kept - 1)
  job_desc.comment = (words .. " " .. kept):gsub("^%s+", ""):gsub("%s+$", "")
end

return signed_booking
