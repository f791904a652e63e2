"""Configuration and command lines of containerd, kubelet, kube-proxy and policy engine."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from localcluster.binaries.cache import Binaries
from localcluster.network.cni import cni_configuration
from localcluster.processes import Component
from localcluster.settings import NODE_NAME, Cluster, Node

CNI_PLUGINS = Path("/usr/lib/cni")
RUNC = Path("/usr/sbin/runc")
MAXIMUM_PODS = 200
PACKAGE = Path(__file__).parents[1]
# The sources of the policy engine; the first is the program.
POLICY_ENGINE = ("network/policy_engine.py", "network/policies.py", "control_plane/client.py")

CONTAINERD = """\
version = 3
root = "{root}"
state = "{state}"
oom_score = 0
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.nri.v1.nri",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
  address = "{socket}"
[ttrpc]
  address = "{socket}.ttrpc"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{pause}"
[plugins.'io.containerd.cri.v1.runtime']
  disable_apparmor = true
  enable_unprivileged_ports = true            # CoreDNS listens on port 53 and is not root
  netns_mounts_under_state_dir = true         # /run/netns remains if a cluster is killed
  restrict_oom_score_adj = true               # a lower value needs CAP_SYS_RESOURCE, which this machine may lack
  tolerate_missing_hugetlb_controller = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{cni_plugins}"]
    conf_dir = "{cni_configuration}"
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        BinaryName = "{runc}"
        Root = "{runc_state}"
        SystemdCgroup = false
"""


def containerd(node: Node, binaries: Binaries) -> Component:
    """containerd, with images in the state directory of the node and all other files in its run directory."""
    cni = node.cluster.etc / "cni"
    write(cni / "10-bridge.conflist", json.dumps(cni_configuration(node.cluster), indent=2))
    configuration = write(
        node.etc / "containerd.toml",
        CONTAINERD.format(
            root=node.image_store,
            state=node.run / "containerd",
            socket=node.containerd_socket,
            pause=binaries.image_reference("pause"),
            cni_plugins=CNI_PLUGINS,
            cni_configuration=cni,
            runc=RUNC,
            runc_state=node.run / "runc",
        ),
    )
    command = (str(binaries.path("containerd")), f"--config={configuration}")
    return Component(node.component("containerd"), command, (configuration,))


def kubelet(node: Node, binaries: Binaries) -> Component:
    """The kubelet, which writes to the state directory of the node."""
    write(node.cluster.etc / "resolv.conf", "")  # pods must not use the resolver of this machine
    configuration = write(node.etc / "kubelet.json", json.dumps(kubelet_configuration(node), indent=2))
    command = (
        str(binaries.path("kubelet")),
        f"--config={configuration}",
        f"--kubeconfig={node.etc}/kubelet.kubeconfig",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
        f"--root-dir={node.kubelet_root}",
        f"--cert-dir={node.kubelet_root}/pki",
        "--v=2",
    )
    return Component(node.component("kubelet"), command, (configuration, node.etc / "kubelet.kubeconfig"))


def kubelet_configuration(node: Node) -> dict[str, Any]:
    """The KubeletConfiguration of a node."""
    cluster = node.cluster
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{cluster.pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "clusterDNS": [cluster.dns_address],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": f"unix://{node.containerd_socket}",
        "eventBurst": 400,
        "eventRecordQPS": 200,
        # Images come from archives and cannot be pulled again, so the kubelet must not remove them from a full disk.
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
        "failCgroupV1": False,  # the default since Kubernetes 1.35 is True
        "failSwapOn": False,
        "healthzPort": 0,
        "imageGCHighThresholdPercent": 100,
        "kubeAPIBurst": 400,
        "kubeAPIQPS": 200,
        "maxPods": MAXIMUM_PODS,
        "nodeStatusUpdateFrequency": "5s",
        "nodeStatusReportFrequency": "1m",
        "oomScoreAdj": 0,
        "podLogsDir": str(node.pod_logs),
        "resolvConf": f"{cluster.etc}/resolv.conf",
        "serializeImagePulls": False,
        "syncFrequency": "10s",
        "tlsCertFile": f"{node.pki}/kubelet-serving.crt",
        "tlsPrivateKeyFile": f"{node.pki}/kubelet-serving.key",
        "volumePluginDir": f"{node.kubelet_root}/volume-plugins",
    }


def kube_proxy(cluster: Cluster, binaries: Binaries) -> Component:
    """kube-proxy, whose first error about missing nftables objects has no effect."""
    configuration = write(
        cluster.etc / "kube-proxy.json",
        json.dumps(
            {
                "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
                "kind": "KubeProxyConfiguration",
                "mode": "nftables",
                "bindAddress": cluster.node_address,
                "clientConnection": {"kubeconfig": f"{cluster.etc}/kube-proxy.kubeconfig"},
                "clusterCIDR": cluster.pod_cidr,
                # The kernel sets the size of the connection table only in the namespace of this machine.
                "conntrack": {
                    "maxPerCore": 0,
                    "min": 0,
                    "tcpEstablishedTimeout": "0s",
                    "tcpCloseWaitTimeout": "0s",
                },
                "healthzBindAddress": "127.0.0.1:10256",
                "hostnameOverride": NODE_NAME,
                "metricsBindAddress": "127.0.0.1:10249",
                "nodePortAddresses": ["primary"],
                "oomScoreAdj": 0,
            },
            indent=2,
        ),
    )
    command = (str(binaries.path("kube-proxy")), f"--config={configuration}", "--v=2")
    return Component("kube-proxy", command, (configuration, cluster.etc / "kube-proxy.kubeconfig"))


def policy_engine(cluster: Cluster, nodes: Sequence[Node]) -> Component:
    """The policy engine, which restarts when its sources change; with the Python behind a virtual environment."""
    sources = tuple(PACKAGE / name for name in POLICY_ENGINE)
    python = Path(sys.executable).resolve()
    command = (str(python), str(sources[0]), f"--address={cluster.node_address}", f"--pki={cluster.pki}")
    return Component("policy-engine", (*command, *(node.name for node in nodes)), sources)


def write(path: Path, text: str) -> Path:
    """Write a file unless it has this text: kube-proxy ends when its configuration file is written."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return path
