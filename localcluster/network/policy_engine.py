"""The component that enforces NetworkPolicies for the pods of the nodes.

    python3 localcluster/network/policy_engine.py --address 10.89.0.2 --pki DIRECTORY node1

It runs in the network namespace of the cluster, watches pods, namespaces and policies, and replaces the table of
nftables some hundredths of a second after a change. It does not filter: pods in the network of the host, connections
from a node, such as probes, and pods without a known address.
"""

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from urllib.parse import urlencode

if __name__ == "__main__":
    # As a program, Python imports from the directory of this file instead of the root of the project.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from localcluster.control_plane.client import Client
from localcluster.errors import ClusterError
from localcluster.network.policies import TABLE, Table
from localcluster.settings import API_PORT, Cluster

# Of named nodes only: pods of simulated nodes, of which there may be hundreds, do not run.
PODS_OF_A_NODE = "spec.nodeName={},spec.hostNetwork=false,status.phase!=Succeeded,status.phase!=Failed"
RETRY_SECONDS = 0.5
Objects = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection of the API that the table depends on, with a field selector."""

    kind: str
    """The argument of `Table.of` with its objects."""
    path: str
    selector: str = ""

    @property
    def query(self) -> dict[str, str]:
        """The parameters of its requests."""
        return {"fieldSelector": self.selector} if self.selector else {}


Updates = SimpleQueue[tuple[Collection, Objects | Exception]]


def collections(nodes: Sequence[str]) -> tuple[Collection, ...]:
    """The collections that the table for the pods of these nodes depends on."""
    return (
        *(Collection("pods", "/api/v1/pods", PODS_OF_A_NODE.format(node)) for node in nodes),
        Collection("namespaces", "/api/v1/namespaces"),
        Collection("policies", "/apis/networking.k8s.io/v1/networkpolicies"),
    )


def main() -> None:
    """Enforce policies until the process ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", required=True, help="address of the API server")
    parser.add_argument("--pki", type=Path, required=True, help="directory with the certificate of the administrator")
    parser.add_argument("nodes", nargs="+", metavar="NODE")
    arguments = parser.parse_args()
    client = Client(arguments.address, API_PORT, arguments.pki)
    watched, updates = collections(arguments.nodes), Updates()
    for collection in watched:
        threading.Thread(target=watch, args=(client, collection, updates), daemon=True).start()
    sync(watched, updates)


def watch(client: Client, collection: Collection, updates: Updates) -> None:
    """Put all objects of a collection into `updates` after each change, or an unexpected error."""
    try:
        for objects in list_and_watch(client, collection.path, collection.query):
            updates.put((collection, objects))
    except Exception as error:
        updates.put((collection, error))


def list_and_watch(client: Client, path: str, query: Mapping[str, str]) -> Iterator[Objects]:
    """All objects of a collection by uid, after the list and after each event, without end."""
    while True:
        try:
            listed = client.get(f"{path}?{urlencode(query)}") or {}
            objects = {item["metadata"]["uid"]: item for item in listed["items"]}
            version = listed["metadata"]["resourceVersion"]
            yield objects
            while True:
                since = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version}
                for event in client.watch(f"{path}?{urlencode({**query, **since})}"):
                    changed = event["object"]
                    if event["type"] == "ERROR":  # usually the version is too old
                        raise ClusterError(changed.get("message", ""))
                    version = changed["metadata"]["resourceVersion"]
                    if event["type"] == "BOOKMARK":
                        continue
                    uid = changed["metadata"]["uid"]
                    objects = {key: one for key, one in objects.items() if key != uid}
                    if event["type"] != "DELETED":
                        objects[uid] = changed
                    yield objects
        except ClusterError as error:
            log(f"listing {path} again: {error}")
            time.sleep(RETRY_SECONDS)


def sync(watched: Sequence[Collection], updates: Updates) -> None:
    """Replace the table when the objects require another one; updates that arrive together cause one replacement."""
    newest: dict[Collection, Objects] = {}
    applied = ""
    while True:
        collection, objects = updates.get()
        if isinstance(objects, Exception):
            raise objects
        newest[collection] = objects
        if not updates.empty() or len(newest) < len(watched):
            continue
        content: dict[str, list[Mapping[str, Any]]] = {}
        for one in watched:
            content.setdefault(one.kind, []).extend(newest[one].values())
        table = Table.of(**content)
        if table.commands != applied:
            began = time.monotonic()
            subprocess.run(["nft", "--file", "-"], input=table.commands, text=True, check=True)
            applied = table.commands
            milliseconds = (time.monotonic() - began) * 1000
            log(f"{len(table.policies)} policies and {len(table.pods)} pods, applied in {milliseconds:.0f} ms")


def is_enforcing(cluster: Cluster) -> bool:
    """Whether the network namespace of the cluster has the table."""
    command = ["nsenter", f"--net={cluster.netns}", "--", "nft", "list", "table", *TABLE.split()]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def log(text: str) -> None:
    """Print a line with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


if __name__ == "__main__":
    main()
