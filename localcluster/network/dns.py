"""The DNS of the cluster: CoreDNS as a Deployment with one pod."""

import socket
import struct
from collections.abc import Iterator
from typing import Any

from localcluster.control_plane.client import Client
from localcluster.settings import NODE_NAME, Cluster

DEPLOYMENT = "/apis/apps/v1/namespaces/kube-system/deployments/coredns"
LABELS = {"k8s-app": "kube-dns"}  # the label by which NetworkPolicies select the DNS
QUERY_HEADER = struct.pack(">HHHHHH", 1, 0x0100, 1, 0, 0, 0)  # one question
TYPE_A, CLASS_IN = 1, 1
QUERY_SECONDS = 1
# CoreDNS calls plugins in a fixed order, not in the order of this file. In one block, `template` would answer before
# `kubernetes`, so the answer NXDOMAIN for all other names has a block of its own.
COREFILE = """\
cluster.local:53 in-addr.arpa:53 ip6.arpa:53 {
  errors
  kubernetes cluster.local in-addr.arpa ip6.arpa {
    pods insecure
    ttl 5
  }
  prometheus :9153
  cache 5
  reload
}
.:53 {
  errors
  health :8080
  ready :8181
  template ANY ANY {
    rcode NXDOMAIN
  }
}
"""


def apply_dns(client: Client, cluster: Cluster, image: str) -> None:
    """Create or correct all objects of the DNS. Raises ClusterError."""
    for path, wanted in objects(cluster, image):
        client.apply(path, wanted)


def is_answering(cluster: Cluster) -> bool:
    """Whether the DNS resolves the name of the API server, for which CoreDNS, kube-proxy and routes must work."""
    labels = ("kubernetes", "default", "svc", "cluster", "local")
    name = b"".join(bytes([len(label)]) + label.encode() for label in labels) + b"\0"
    question = QUERY_HEADER + name + struct.pack(">HH", TYPE_A, CLASS_IN)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.settimeout(QUERY_SECONDS)
        try:
            connection.sendto(question, (cluster.dns_address, 53))
            answer = connection.recv(512)
        except OSError:
            return False
    return answer.endswith(socket.inet_aton(cluster.api_service_address))


def objects(cluster: Cluster, image: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each object of the DNS, with its path in the API."""
    core, rbac = "/api/v1/namespaces/kube-system", "/apis/rbac.authorization.k8s.io/v1"
    group, reader = "rbac.authorization.k8s.io", "system:coredns"
    rules = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    account = {"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"}
    role = {"apiGroup": group, "kind": "ClusterRole", "name": reader}
    yield f"{core}/serviceaccounts/coredns", new_object("v1", "ServiceAccount", "coredns")
    yield (
        f"{rbac}/clusterroles/{reader}",
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": reader}, "rules": rules},
    )
    yield (
        f"{rbac}/clusterrolebindings/{reader}",
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": reader},
            "roleRef": role,
            "subjects": [account],
        },
    )
    yield f"{core}/configmaps/coredns", new_object("v1", "ConfigMap", "coredns") | {"data": {"Corefile": COREFILE}}
    yield f"{core}/services/kube-dns", new_object("v1", "Service", "kube-dns") | {"spec": service(cluster)}
    yield DEPLOYMENT, new_object("apps/v1", "Deployment", "coredns") | {"spec": deployment(image)}


def new_object(version: str, kind: str, name: str) -> dict[str, Any]:
    """An object in kube-system with the labels of the DNS."""
    metadata = {"name": name, "namespace": "kube-system", "labels": LABELS}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def service(cluster: Cluster) -> dict[str, Any]:
    """The spec of the Service `kube-dns`."""
    ports = [{"name": f"dns-{p.lower()}", "port": 53, "protocol": p, "targetPort": 53} for p in ("UDP", "TCP")]
    return {"clusterIP": cluster.dns_address, "selector": LABELS, "ports": ports}


def deployment(image: str) -> dict[str, Any]:
    """The spec of the Deployment. The pod listens on port 53, because a NetworkPolicy refers to the port of the pod."""
    container = {
        "name": "coredns",
        "image": image,
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [{"name": f"dns-{p.lower()}", "containerPort": 53, "protocol": p} for p in ("UDP", "TCP")],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "10m", "memory": "30Mi"}, "limits": {"memory": "170Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [{"name": "configuration", "mountPath": "/etc/coredns"}],
    }
    pod = {
        "serviceAccountName": "coredns",
        "priorityClassName": "system-cluster-critical",
        # The first node: on simulated nodes, which the scheduler could choose as well, nothing runs.
        "nodeSelector": {"kubernetes.io/hostname": NODE_NAME},
        "dnsPolicy": "Default",
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": [{"name": "configuration", "configMap": {"name": "coredns"}}],
    }
    return {
        "replicas": 1,
        "selector": {"matchLabels": LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": pod},
    }
