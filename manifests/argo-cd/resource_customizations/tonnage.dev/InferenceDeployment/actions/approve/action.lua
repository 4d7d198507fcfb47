local plan = obj.status ~= nil and obj.status.proposedPlan or nil
if plan == nil or plan.hash == nil then
  error("no plan waits for approval: status.proposedPlan is not set")
end
obj.spec.approvedPlan = plan.hash
return obj
