"""Custom resources with the fields of Kueue's that the operator and the tests use.

Other fields are dropped, so an operator that needs one of them fails its tests.
"""

from typing import Any

from support.api_client import Api, ApiError, Object, is_served, wait_for

GROUP = "kueue.x-k8s.io"
API = f"/apis/{GROUP}/v1beta2"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def _map(**properties: Object) -> Object:
    return {"type": "object", "properties": properties}


def _list(items: Object, *keys: str) -> Object:
    kind = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)} if keys else {}
    return {"type": "array", "items": items | ({"required": list(keys)} if keys else {}), **kind}


def _rule(rule: str, message: str) -> Object:
    return {"rule": rule, "message": message}


TEXT: Object = {"type": "string"}
NUMBER: Object = {"type": "integer"}
FLAG: Object = {"type": "boolean"}
TIME: Object = {"type": "string", "format": "date-time"}
ANY: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TEXTS: Object = {"type": "object", "additionalProperties": TEXT}
AMOUNTS: Object = {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}}
TOLERATIONS = _list(_map(key=TEXT, operator=TEXT, value=TEXT, effect=TEXT, tolerationSeconds=NUMBER))
CONDITIONS = _list(
    _map(
        type=TEXT,
        status={"type": "string", "enum": ["True", "False", "Unknown"]},
        reason={"type": "string", "minLength": 1},
        message=TEXT,
        lastTransitionTime=TIME,
        observedGeneration=NUMBER,
    )
    | {"required": ["lastTransitionTime", "message", "reason", "status"]},
    "type",
)
POD_SET = _map(
    name=TEXT,
    count=NUMBER,
    minCount=NUMBER,
    template=_map(metadata=ANY, spec=ANY),
    topologyRequest=_map(required=TEXT, preferred=TEXT, unconstrained=FLAG, podIndexLabel=TEXT, podSetGroupName=TEXT),
)
ASSIGNMENT = _map(name=TEXT, count=NUMBER, flavors=TEXTS, resourceUsage=AMOUNTS, topologyAssignment=ANY)
UPDATE = _map(name=TEXT, labels=TEXTS, annotations=TEXTS, nodeSelector=TEXTS, tolerations=TOLERATIONS)
CHECK = _map(
    name=TEXT, state=TEXT, message=TEXT, lastTransitionTime=TIME, podSetUpdates=_list(UPDATE), retryCount=NUMBER
)


def _reserves(version: str) -> str:
    """A CEL expression: whether this version of a Workload has a quota reservation."""
    return (
        f"has({version}.status) && has({version}.status.conditions) && "
        f"{version}.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True')"
    )


def _workload() -> Object:
    spec = _map(
        queueName=TEXT,
        podSets=_list(POD_SET, "name") | {"maxItems": 18},
        priority=NUMBER,
        priorityClassRef=_map(group=TEXT, kind=TEXT, name=TEXT) | {"required": ["group", "kind", "name"]},
        active=FLAG | {"default": True},
        maximumExecutionTimeSeconds=NUMBER | {"minimum": 1},
    )
    spec["x-kubernetes-validations"] = [
        _rule("!has(self.priorityClassRef) || has(self.priority)", "a priorityClassRef needs a priority"),
    ]
    status = _map(
        conditions=CONDITIONS | {"maxItems": 16},
        admission=_map(clusterQueue=TEXT, podSetAssignments=_list(ASSIGNMENT, "name")),
        requeueState=_map(count=NUMBER, requeueAt=TIME),
        reclaimablePods=_list(_map(name=TEXT, count=NUMBER), "name"),
        admissionChecks=_list(CHECK, "name"),
        accumulatedPastExecutionTimeSeconds=NUMBER,
    )
    schema = _map(spec=spec, status=status)
    before, now = _reserves("oldSelf"), _reserves("self")
    schema["x-kubernetes-validations"] = [
        _rule(f"!({before} && {now}) || oldSelf.spec.queueName == self.spec.queueName", "queueName is reserved"),
        _rule(f"!({before} && {now}) || oldSelf.spec.podSets == self.spec.podSets", "podSets are reserved"),
        _rule(
            f"!({before}) || has(oldSelf.spec.priorityClassRef) == has(self.spec.priorityClassRef)",
            "whether there is a priorityClassRef is reserved",
        ),
        _rule(
            f"!({before} && {now}) || has(oldSelf.spec.maximumExecutionTimeSeconds) == "
            "has(self.spec.maximumExecutionTimeSeconds) && (!has(self.spec.maximumExecutionTimeSeconds) || "
            "oldSelf.spec.maximumExecutionTimeSeconds == self.spec.maximumExecutionTimeSeconds)",
            "maximumExecutionTimeSeconds is reserved",
        ),
        _rule(f"!({now}) || has(self.status.admission)", "a reservation needs an admission"),
    ]
    return schema


RESOURCE_GROUPS = _list(
    _map(
        coveredResources=_list(TEXT),
        flavors=_list(_map(name=TEXT, resources=_list(_map(name=TEXT, nominalQuota=AMOUNTS["additionalProperties"])))),
    )
)
QUEUE_SPEC = _map(
    resourceGroups=RESOURCE_GROUPS,
    namespaceSelector=ANY,
    preemption=_map(withinClusterQueue=TEXT),
    stopPolicy=TEXT,
    admissionChecksStrategy=_map(admissionChecks=_list(_map(name=TEXT))),
)
FLAVOR_SPEC = _map(nodeLabels=TEXTS, tolerations=TOLERATIONS, nodeTaints=ANY | {"type": "array", "items": ANY})
FLAVOR_SPEC["properties"]["nodeTaints"] = _list(_map(key=TEXT, value=TEXT, effect=TEXT))
FLAVOR_SPEC["properties"]["topologyName"] = TEXT
SCHEMAS: dict[tuple[str, str], Object] = {
    ("workloads", "Workload"): _workload(),
    ("localqueues", "LocalQueue"): _map(spec=_map(clusterQueue=TEXT, stopPolicy=TEXT), status=ANY),
    ("clusterqueues", "ClusterQueue"): _map(spec=QUEUE_SPEC, status=ANY),
    ("resourceflavors", "ResourceFlavor"): _map(spec=FLAVOR_SPEC),
    ("workloadpriorityclasses", "WorkloadPriorityClass"): _map(value=NUMBER, description=TEXT),
    ("topologies", "Topology"): _map(spec=_map(levels=_list(_map(nodeLabel=TEXT)))),
    ("admissionchecks", "AdmissionCheck"): _map(spec=_map(controllerName=TEXT), status=_map(conditions=CONDITIONS)),
}
NAMESPACED = ("workloads", "localqueues")


def install_kueue(api: Api) -> None:
    """Creates the definitions, and waits until all are served."""
    for (plural, kind), schema in SCHEMAS.items():
        api.create(DEFINITIONS, _definition(plural, kind, schema))
    for plural, _ in SCHEMAS:
        wait_for(f"{plural} to be served", lambda: is_served(api, f"{API}/{plural}"))  # noqa: B023


def uninstall_kueue(api: Api) -> None:
    """Deletes the definitions and with them all objects of Kueue."""
    for plural, _ in SCHEMAS:
        path = f"{DEFINITIONS}/{plural}.{GROUP}"
        if api.find(path):
            api.delete(path)
        wait_for(f"{plural} to be gone", lambda: api.find(path) is None)  # noqa: B023


def _definition(plural: str, kind: str, schema: Object) -> Object:
    version: dict[str, Any] = {"name": "v1beta2", "served": True, "storage": True}
    version |= {"schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{GROUP}",
            # Not the project's API, but its group ends in k8s.io, which is reserved for reviewed ones.
            "annotations": {"api-approved.kubernetes.io": "unapproved, fields for the tests of HorovodJob"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if plural in NAMESPACED else "Cluster",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [version],
        },
    }


def create_or_replace(api: Api, path: str, body: Object) -> Object:
    """The object, as it is after this."""
    try:
        return api.create(path, body)
    except ApiError as error:
        if error.status != 409:
            raise
    found = f"{path}/{body['metadata']['name']}"
    return api.replace(found, body | {"metadata": body["metadata"] | {"resourceVersion": _version(api, found)}})


def _version(api: Api, path: str) -> str:
    return str(api.get(path)["metadata"]["resourceVersion"])
