"""The API server's processor time for a status write of a HorovodJob, beside the same resource without CEL rules.

    .venv/bin/python benchmarks/status_write.py [--writes 300] [--rounds 5]

Starts an API server of its own. Both resources are written in turn, and the target is 1.3 times the cost without rules.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import yaml
from usage import processor_seconds

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "tests"))

from api.client import JOBS, Api, install_definition, is_served, wait_for  # noqa: E402
from localcluster.apiserver import ControlPlane  # noqa: E402

PLAIN_GROUP = "plain.example.org"
TARGET = 1.3
SPEC: dict[str, Any] = {
    "image": "trainer:1",
    "command": ["python3", "train.py", "--epochs", "90"],
    "env": [{"name": f"VARIABLE_{number}", "value": "value"} for number in range(10)],
    "worker": {"replicas": 4, "resources": {"limits": {"cpu": "4", "memory": "16Gi"}}},
    "azureFiles": [{"name": "myshare", "account": "mystorageaccount", "share": "myshare"}],
}


def without_rules(schema: Any) -> Any:
    """A schema without its CEL rules."""
    if isinstance(schema, dict):
        return {key: without_rules(value) for key, value in schema.items() if key != "x-kubernetes-validations"}
    return [without_rules(each) for each in schema] if isinstance(schema, list) else schema


def install_plain_definition(api: Api) -> str:
    """The collection of a resource that is a HorovodJob but for its rules."""
    definition = without_rules(next(yaml.safe_load_all((ROOT / "manifests" / "base" / "crd.yaml").read_text())))
    definition["metadata"]["name"] = f"horovodjobs.{PLAIN_GROUP}"
    definition["spec"]["group"] = PLAIN_GROUP
    for names in ("shortNames", "categories"):
        definition["spec"]["names"].pop(names, None)
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    collection = f"/apis/{PLAIN_GROUP}/v1beta1/namespaces/default/horovodjobs"
    wait_for("the plain resource", lambda: is_served(api, collection))
    return collection


def milliseconds(api: Api, pid: int, path: str, writes: int) -> float:
    """Processor time of the API server for one status write of the object."""
    before = processor_seconds(pid)
    for number in range(writes):
        api.patch(f"{path}/status", {"status": {"attempt": 1, "readyWorkers": number}})
    return (processor_seconds(pid) - before) / writes * 1000


def main() -> int:
    """Prints both costs and their ratio; 1 if the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--writes", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with ControlPlane() as control_plane:
        api, pid = Api(control_plane), control_plane.pid("kube-apiserver")
        install_definition(api)
        collections = {"with rules": JOBS.format("default"), "without": install_plain_definition(api)}
        for collection in collections.values():
            group = collection.split("/")[2]
            body = {"apiVersion": f"{group}/v1beta1", "kind": "HorovodJob", "metadata": {"name": "job"}, "spec": SPEC}
            api.create(collection, body)
        costs: dict[str, list[float]] = {name: [] for name in collections}
        for _ in range(options.rounds):
            for name, collection in collections.items():
                costs[name].append(milliseconds(api, pid, f"{collection}/job", options.writes))
    for name, measured in costs.items():
        print(f"{name:12} {statistics.median(measured):6.2f} ms a status write (rounds: {json.dumps(measured)})")
    ratio = statistics.median(costs["with rules"]) / statistics.median(costs["without"])
    print(f"ratio        {ratio:6.2f} (target: at most {TARGET})")
    return int(ratio > TARGET)


if __name__ == "__main__":
    sys.exit(main())
