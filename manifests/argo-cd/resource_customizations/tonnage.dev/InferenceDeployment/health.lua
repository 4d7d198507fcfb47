-- Healthy: every wanted replica of the current spec answers requests.
-- Suspended: a plan waits for approval (spec.approval: Manual).
-- Degraded: a rollout was rolled back, a person must change something, or replicas have waited too long for GPUs.
-- Progressing: everything else, for example replicas that load their model.

local os = require("os")

local patience = 30 * 60 -- seconds that replicas may wait for GPUs before the object is Degraded

local function conditions_of(status)
  local found = {}
  for _, condition in ipairs(status.conditions or {}) do
    found[condition.type] = condition
  end
  return found
end

local function is_true(condition)
  return condition ~= nil and condition.status == "True"
end

-- A past time in the format of the API. These strings sort by time, and Argo CD has no library to parse
-- them. os.date with a time uses the local time zone, hence the shift.
local function ago(seconds)
  local now = os.time()
  local shift = now - os.time(os.date("!*t"))
  return os.date("%Y-%m-%dT%XZ", now - shift - seconds)
end

-- If the endpoint for long requests is not ready, use its own reason.
local function reason_of(ready, endpoints)
  if ready.reason ~= "EndpointNotReady" then
    return ready.reason
  end
  for _, endpoint in ipairs(endpoints or {}) do
    if endpoint.ready == false then
      return endpoint.reason
    end
  end
  return ready.reason
end

-- Whether no node has the GPUs, or none that has them the CPU, memory or disk, or a quota is used up.
local function lacks_capacity(reason)
  return reason == "InsufficientGPUs" or reason == "InsufficientResources" or reason == "QuotaExceeded"
end

local function waits_too_long(reason, ready, placed)
  if not lacks_capacity(reason) and reason ~= "Unschedulable" then
    return false
  end
  local since = ready.lastTransitionTime
  if placed ~= nil and placed.status == "False" then
    since = placed.lastTransitionTime
  end
  return since ~= nil and since < ago(patience)
end

-- Ready has the first cause. A failure is more important than a wait.
local function cause(ready, available)
  local waits = ready.reason == "AwaitingApproval" or lacks_capacity(ready.reason)
  if waits and available ~= nil and available.status == "False" then
    return available
  end
  return ready
end

local function format_condition(condition)
  return condition.reason .. ": " .. condition.message
end

local function health(status, message)
  return {status = status, message = message}
end

local status = obj.status
if status == nil or status.observedGeneration ~= obj.metadata.generation then
  return health("Progressing", "Waiting for the operator to take up the spec")
end

local conditions = conditions_of(status)
local ready = conditions["Ready"]
if ready == nil then
  return health("Progressing", "Waiting for the operator to report")
end
if is_true(ready) then
  return health("Healthy", ready.message)
end
if is_true(conditions["Degraded"]) then
  return health("Degraded", format_condition(conditions["Degraded"]))
end
if is_true(conditions["Stalled"]) then
  return health("Degraded", format_condition(cause(ready, conditions["Available"])))
end
local reason = reason_of(ready, status.endpoints)
if reason == "AwaitingApproval" then
  return health("Suspended", format_condition(ready))
end
if waits_too_long(reason, ready, conditions["Placed"]) then
  return health("Degraded", format_condition(ready))
end
return health("Progressing", format_condition(ready))
