"""The CNI configuration, which describes the network of pods."""

from typing import Any

from localcluster.settings import Cluster


def cni_configuration(cluster: Cluster) -> dict[str, Any]:
    """A bridge for the pods of all nodes, addresses from local files, and host ports."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(cluster.run / "cni-addresses"),
            "ranges": [[{"subnet": cluster.pod_cidr}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": cluster.interface, "plugins": [bridge, portmap]}
