-- wrk script: sends prepared requests in random order and prints one JSON line.
-- BENCH_REQUESTS names a Lua file that returns a list of {path=..., headers={...}}.
local spec = dofile(os.getenv("BENCH_REQUESTS"))
local threads, prepared, n = 0, {}, 0

function setup(thread)
  threads = threads + 1
  thread:set("seed", 7919 * threads)
end

function init(args)
  math.randomseed(seed)
  for i, r in ipairs(spec) do
    prepared[i] = wrk.format("GET", r.path, r.headers)
  end
  n = #prepared
end

function request()
  return prepared[math.random(n)]
end

function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    'RESULT {"requests":%d,"us":%d,"p50":%d,"p99":%d,"max":%d,' ..
    '"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d}\n',
    summary.requests, summary.duration, latency:percentile(50),
    latency:percentile(99), latency.max,
    e.connect, e.read, e.write, e.status, e.timeout))
end
