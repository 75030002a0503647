-- What wrk asks, and what it reports: one JSON object as its last line.
--
-- With an argument: POSTs of questions of which no two are alike, numbered from it. Without:
-- the address that wrk is given.

local number

function init(args)
  number = tonumber(args[1])
end

function request()
  if number == nil then
    return wrk.format()
  end
  number = number + 1
  local m = 16 + (number * 7919) % 4096
  local n = 128 * (1 + number % 64)
  local k = 1024 + 8 * math.floor(number / 64)
  local body = string.format('{"m":%d,"n":%d,"k":%d}', m, n, k)
  return wrk.format("POST", nil, { ["Content-Type"] = "application/json" }, body)
end

function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    '{"requests":%d,"seconds":%.6f,"p50_ms":%.3f,"p99_ms":%.3f,"errors":%d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3,
    latency:percentile(99) / 1e3, e.connect + e.read + e.write + e.status + e.timeout))
end
