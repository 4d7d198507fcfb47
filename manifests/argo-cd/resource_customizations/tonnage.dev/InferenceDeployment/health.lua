-- Healthy: every wanted replica of this very spec answers requests.
-- Suspended: a plan waits for a person (spec.approval: Manual).
-- Degraded: a rollout failed and was taken back, nothing gets better without a change by somebody, or GPUs are awaited for too long.
-- Progressing: all else, among it replicas that load their model.

local os = require("os")

local patience = 30 * 60 -- seconds to wait for GPUs before a person should look

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

-- A moment of the past as the API writes it. Such texts compare as the moments do, and no library
-- to read one is open to these scripts. os.date with a moment is in local time, hence the shift.
local function ago(seconds)
  local now = os.time()
  local shift = now - os.time(os.date("!*t"))
  return os.date("%Y-%m-%dT%XZ", now - shift - seconds)
end

-- Where an endpoint for long requests is in the way, its own reason says for what it waits.
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

local function waits_too_long(reason, ready, placed)
  if reason ~= "InsufficientGPUs" and reason ~= "Unschedulable" then
    return false
  end
  local since = ready.lastTransitionTime
  if placed ~= nil and placed.status == "False" then
    since = placed.lastTransitionTime
  end
  return since ~= nil and since < ago(patience)
end

-- Ready tells the first cause. A failure behind a wait is what a person needs to know first.
local function cause(ready, available)
  local waits = ready.reason == "AwaitingApproval" or ready.reason == "InsufficientGPUs"
  if waits and available ~= nil and available.status == "False" then
    return available
  end
  return ready
end

local function tell(condition)
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
  return health("Degraded", tell(conditions["Degraded"]))
end
if is_true(conditions["Stalled"]) then
  return health("Degraded", tell(cause(ready, conditions["Available"])))
end
local reason = reason_of(ready, status.endpoints)
if reason == "AwaitingApproval" then
  return health("Suspended", tell(ready))
end
if waits_too_long(reason, ready, conditions["Placed"]) then
  return health("Degraded", tell(ready))
end
return health("Progressing", tell(ready))
