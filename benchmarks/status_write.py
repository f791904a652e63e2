"""The API server's processor time for a status write of a HorovodJob, beside the same resource without CEL rules.

A third resource has the rules, and a status whose fields are managed one by one instead of as a whole.

    .venv/bin/python benchmarks/status_write.py [--writes 300] [--rounds 5]

Starts an API server of its own. The resources are written in turn, and the target is 1.3 times the cost without rules.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import yaml
from usage import processor_seconds

from horovodjob.api.constants import ConditionType

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "tests"))

from localcluster.control_plane.standalone import ControlPlane  # noqa: E402
from support.api_client import JOBS, Api, install_definition, is_served, wait_for  # noqa: E402

PLAIN_GROUP = "plain.example.org"
GRANULAR_GROUP = "granular.example.org"
TARGET = 1.3
ROLES = ("launcher", "worker")
SPEC: dict[str, Any] = {
    "image": "trainer:1",
    "command": ["python3", "train.py", "--epochs", "90"],
    "env": [{"name": f"VARIABLE_{number}", "value": "value"} for number in range(10)],
    "worker": {"replicas": 4, "resources": {"limits": {"cpu": "4", "memory": "16Gi"}}},
    "azureFiles": [{"name": "myshare", "account": "mystorageaccount", "share": "myshare"}],
}

STATUS: dict[str, Any] = {
    "observedGeneration": 1,
    "phase": "Running",
    "executionState": "running",
    "startTime": "2026-11-22T10:00:00Z",
    "selector": "horovodjob.dev/job-name=job,horovodjob.dev/role=worker",
    "replicaStatuses": {role: dict.fromkeys(("active", "ready", "succeeded", "failed"), 1) for role in ROLES},
    "conditions": [
        {
            "type": type_.value,
            "status": "False",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-11-22T10:00:00Z",
            "reason": "RanksRunning",
            "message": "",
        }
        for type_ in ConditionType
    ],
}


def without_rules(schema: Any) -> Any:
    """A schema without its CEL rules."""
    if isinstance(schema, dict):
        return {key: without_rules(value) for key, value in schema.items() if key != "x-kubernetes-validations"}
    return [without_rules(each) for each in schema] if isinstance(schema, list) else schema


def definition() -> dict[str, Any]:
    """The CustomResourceDefinition of HorovodJobs."""
    found: dict[str, Any] = next(yaml.safe_load_all((ROOT / "manifests" / "base" / "crd.yaml").read_text()))
    return found


def granular_definition() -> dict[str, Any]:
    """The CustomResourceDefinition with a status whose fields are managed one by one."""
    found = definition()
    schema = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["status"]["x-kubernetes-map-type"]
    return found


def install_variant(api: Api, group: str, variant: dict[str, Any]) -> str:
    """The collection of a resource with this definition in this API group."""
    variant["metadata"]["name"] = f"horovodjobs.{group}"
    variant["spec"]["group"] = group
    for names in ("shortNames", "categories"):
        variant["spec"]["names"].pop(names, None)
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", variant)
    collection = f"/apis/{group}/v1beta1/namespaces/default/horovodjobs"
    wait_for(f"the resource of {group}", lambda: is_served(api, collection))
    return collection


def milliseconds(api: Api, pid: int, path: str, writes: int) -> float:
    """Processor time of the API server for one status write of the object."""
    before = processor_seconds(pid)
    for number in range(writes):
        api.patch(f"{path}/status", {"status": {"attempt": 1, "workersReady": f"{number % 4}/4"}})
    return (processor_seconds(pid) - before) / writes * 1000


def main() -> int:
    """Prints both costs and their ratio; 1 if the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--writes", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with ControlPlane() as control_plane:
        api, pid = Api(control_plane.kubeconfig), control_plane.pid("kube-apiserver")
        install_definition(api)
        collections = {
            "with rules": JOBS.format("default"),
            "without": install_variant(api, PLAIN_GROUP, without_rules(definition())),
            "granular": install_variant(api, GRANULAR_GROUP, granular_definition()),
        }
        for collection in collections.values():
            group = collection.split("/")[2]
            body = {"apiVersion": f"{group}/v1beta1", "kind": "HorovodJob", "metadata": {"name": "job"}, "spec": SPEC}
            api.create(collection, body)
            api.patch(f"{collection}/job/status", {"status": STATUS})
        costs: dict[str, list[float]] = {name: [] for name in collections}
        for _ in range(options.rounds):
            for name, collection in collections.items():
                costs[name].append(milliseconds(api, pid, f"{collection}/job", options.writes))
        sizes = {name: len(json.dumps(api.get(f"{collection}/job"))) for name, collection in collections.items()}
    for name, measured in costs.items():
        print(f"{name:12} {statistics.median(measured):6.2f} ms a status write (rounds: {json.dumps(measured)})")
    ratio = statistics.median(costs["with rules"]) / statistics.median(costs["without"])
    print(f"ratio        {ratio:6.2f} (target: at most {TARGET})")
    for name, size in sizes.items():
        print(f"{name:12} {size:6d} bytes of JSON")
    return int(ratio > TARGET)


if __name__ == "__main__":
    sys.exit(main())
