local os = require("os")

if obj.spec.rollout == nil then
  obj.spec.rollout = {}
end
obj.spec.rollout.restartedAt = os.date("!%Y-%m-%dT%XZ")
return obj
