-- Health of ModelCompilation, TuningRun and DevicePool for Argo CD.
local health = {status = "Progressing", message = "the operator has not seen it yet"}
if obj.status == nil or obj.status.conditions == nil then
  return health
end
if obj.metadata.generation ~= nil and obj.status.observedGeneration ~= obj.metadata.generation then
  health.message = "the operator has not seen this version yet"
  return health
end
local conditions = {}
for _, condition in ipairs(obj.status.conditions) do
  conditions[condition.type] = condition
end
local function holds(name)
  return conditions[name] ~= nil and conditions[name].status == "True"
end
local function say(status, name)
  health.status = status
  if conditions[name] ~= nil then
    health.message = conditions[name].message or ""
  end
  return health
end
if holds("Stalled") then
  return say("Degraded", "Stalled")
end
if holds("Ready") then
  return say("Healthy", "Ready")
end
if obj.spec ~= nil and obj.spec.suspend == true then
  health.status = "Suspended"
  health.message = "spec.suspend is set"
  return health
end
return say("Progressing", "Ready")
