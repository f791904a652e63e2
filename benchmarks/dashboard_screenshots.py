"""Takes docs/images/dashboard-*.png: pages of `hvj dashboard` in Chromium, with jobs of every phase.

    make screenshots

The API server is a real one; jobs, pods and nodes are what operator and kubelets would report.
"""

import base64
import json
import os
import sys
from datetime import datetime, timedelta
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).parent))
from etcd_size import call

from cli.cluster_state import ClusterState
from cli.dashboard.browser import dashboard
from cli.dashboard.chromium import chromium
from cli.dashboard.pictures import take_pictures
from cli.dashboard.sample_jobs import RUNNING, create_samples, samples
from cli.kubelet import NODE, Kubelet
from localcluster.control_plane.components import ControlPlaneSettings
from localcluster.control_plane.standalone import ControlPlane
from support.api_client import ROOT, Api, Object, install_definition

IMAGES = ROOT / "docs" / "images"
NAMESPACE, CLUSTER, PRICE = "research", "training", "2.90 EUR"
NODES = tuple(f"gpu-{number:02}" for number in range(1, 7))
POOLS = (("a100", "Standard_ND96asr_v4", "8"), ("t4", "Standard_NC16as_T4_v3", "1"), ("cpu", "Standard_D16s_v5", "0"))


def create_nodes(api: Api) -> None:
    """The labels, GPUs and conditions of the nodes: two pools with GPUs, and one with the launcher."""
    for index, name in enumerate((*NODES, NODE)):
        pool, size, _ = POOLS[0] if index < 4 else POOLS[1] if index < 6 else POOLS[2]
        labels = {"kubernetes.azure.com/agentpool": pool, "node.kubernetes.io/instance-type": size}
        if name == NODE:  # the one with a kubelet
            api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}})
        else:
            api.create("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
    report_ready(api)


def report_ready(api: Api) -> None:
    """The state of the nodes, which the controllers doubt after 40 s without a report."""
    for index, name in enumerate((*NODES, NODE)):
        gpus = (POOLS[0] if index < 4 else POOLS[1] if index < 6 else POOLS[2])[2]
        room = {"cpu": "96", "memory": "900Gi", "pods": "110", "nvidia.com/gpu": gpus}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"capacity": room, "allocatable": room, "conditions": [ready]}
        api.patch(f"/api/v1/nodes/{name}/status", {"status": status})
        api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})  # the API server gives new nodes one


def make_older(settings: ControlPlaneSettings) -> None:
    """Moves the creation of each job to three minutes before its start: the API server knows only the present."""
    for one in samples():
        key = base64.b64encode(f"/registry/horovodjob.dev/horovodjobs/{NAMESPACE}/{one.name}".encode()).decode()
        stored = call(settings, "kv/range", {"key": key})["kvs"][0]["value"]
        job: Object = json.loads(base64.b64decode(stored))
        waits = [each["lastTransitionTime"] for each in job["status"].get("conditions", [])]
        started = datetime.fromisoformat(job["status"].get("startTime") or min(waits))
        job["metadata"]["creationTimestamp"] = (started - timedelta(minutes=3)).strftime("%Y-%m-%dT%H:%M:%SZ")
        value = base64.b64encode(json.dumps(job).encode()).decode()
        call(settings, "kv/put", {"key": key, "value": value})


def main() -> None:
    """Plays the cluster and takes the pictures."""
    with ControlPlane(controllers=True) as control_plane:
        api = Api(control_plane.kubeconfig)
        install_definition(api)
        api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        with Kubelet(control_plane, api) as kubelet:
            create_nodes(api)
            create_samples(ClusterState(api, NAMESPACE), NODES[:4])
            make_older(control_plane.settings)
            log = kubelet.log(NAMESPACE, f"{RUNNING}-launcher")
            log.write(*(f"epoch {epoch}/24, 11850 images/s" for epoch in range(1, 17)))
            kubeconfig = yaml.safe_load(control_plane.kubeconfig.read_text())
            kubeconfig["clusters"][0]["name"] = kubeconfig["contexts"][0]["context"]["cluster"] = CLUSTER
            os.environ["KUBECONFIG"] = path = str(control_plane.directory / "pictures.kubeconfig")
            Path(path).write_text(yaml.safe_dump(kubeconfig))
            with dashboard("-w", NAMESPACE, "--gpu-hour-price", PRICE, is_open=False) as opened, chromium() as page:
                page.open(opened.address).shows(f"{len(samples())} jobs")
                report_ready(api)
                for picture in take_pictures(page, opened.origin, NAMESPACE, NODES, IMAGES):
                    print(f"wrote {picture.relative_to(ROOT)}, {picture.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
