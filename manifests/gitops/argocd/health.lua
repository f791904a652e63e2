-- Health of a HorovodJob in Argo CD, which disables the standard libraries but for base and table.
local status, generation = obj.status or {}, obj.metadata.generation
if obj.status == nil or (generation and status.observedGeneration and status.observedGeneration < generation) then
  return {status = "Progressing", message = "The operator has not observed the spec yet"}
end

local conditions, isTrue = {}, {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
  isTrue[condition.type] = condition.status == "True"
end

local function health(result, condition)
  local message = condition and condition.message or "waiting for the operator"
  return {status = result, message = (status.phase or "Pending") .. ": " .. message}
end

if isTrue.Failed then return health("Degraded", conditions.Failed) end
if isTrue.Stalled then return health("Degraded", conditions.Stalled) end
if isTrue.Succeeded then return health("Healthy", conditions.Succeeded) end
if isTrue.Suspended then return health("Suspended", conditions.Suspended) end
return health("Progressing", conditions.Ready)
