if obj.spec.approval ~= "Manual" then
  error("nothing is pinned: spec.approval is not Manual")
end
obj.spec.approval = "Automatic"
obj.spec.approvedPlan = nil
return obj
