-- Healthy: the pool can run replicas, or nodes join when replicas need them.
-- Degraded: a person must check the nodes or the spec.

local function health(status, message)
  return {status = status, message = message}
end

local status = obj.status
if status == nil or status.observedGeneration ~= obj.metadata.generation then
  return health("Progressing", "Waiting for the operator to take up the spec")
end
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Ready" then
    local text = condition.reason .. ": " .. condition.message
    if condition.status == "True" then
      return health("Healthy", condition.message)
    end
    local grows = obj.spec ~= nil and obj.spec.maxNodes ~= nil and obj.spec.maxNodes > 0
    if condition.reason == "NoNodes" and grows then
      return health("Healthy", text)
    end
    return health("Degraded", text)
  end
end
return health("Progressing", "Waiting for the operator to report")
