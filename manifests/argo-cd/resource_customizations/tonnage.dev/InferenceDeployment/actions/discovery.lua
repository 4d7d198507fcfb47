local status = obj.status or {}
local spec = obj.spec or {}

local waits = status.proposedPlan ~= nil and status.proposedPlan.hash ~= nil
local is_manual = spec.approval == "Manual"

return {
  approve = {disabled = not waits, displayName = "Approve the proposed plan"},
  restart = {disabled = false, displayName = "Restart the pods"},
  unpin = {disabled = not is_manual, displayName = "Approve plans automatically"}
}
