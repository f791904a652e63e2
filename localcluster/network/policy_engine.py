"""The component that enforces NetworkPolicies on the nodes' pods.

    python3 localcluster/network/policy_engine.py --address 10.89.0.2 --pki DIRECTORY node1

Runs in the network namespace of the nodes that it is given. It follows their pods, namespaces and policies with watches
and replaces the table of nftables whenever they ask for another one, some hundredths of a second after the change. What
it does not filter: pods in the nodes' own network, whatever comes from the nodes, as probes do, and a pod whose address
is not known yet.
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
    # As a program, Python looks for modules beside this file instead of at the root of the project.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from localcluster.control_plane.client import Client
from localcluster.errors import ClusterError
from localcluster.network.policies import TABLE, Table
from localcluster.settings import API_PORT, Cluster

# Of real nodes only: nothing runs on simulated ones, and there may be hundreds.
PODS_OF_A_NODE = "spec.nodeName={},spec.hostNetwork=false,status.phase!=Succeeded,status.phase!=Failed"
RETRY_SECONDS = 0.5
Objects = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Collection:
    """Objects to follow: what they are for the table, where they are, and which of them."""

    kind: str
    path: str
    selector: str = ""

    @property
    def query(self) -> dict[str, str]:
        return {"fieldSelector": self.selector} if self.selector else {}


News = SimpleQueue[tuple[Collection, Objects | Exception]]


def collections(nodes: Sequence[str]) -> tuple[Collection, ...]:
    """All that the table for the pods of these nodes depends on."""
    return (
        *(Collection("pods", "/api/v1/pods", PODS_OF_A_NODE.format(node)) for node in nodes),
        Collection("namespaces", "/api/v1/namespaces"),
        Collection("policies", "/apis/networking.k8s.io/v1/networkpolicies"),
    )


def main() -> None:
    """Enforce policies until the process ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", required=True, help="of the API server")
    parser.add_argument("--pki", type=Path, required=True, help="directory with the administrator's certificate")
    parser.add_argument("nodes", nargs="+", metavar="NODE")
    arguments = parser.parse_args()
    client = Client(arguments.address, API_PORT, arguments.pki)
    followed, news = collections(arguments.nodes), News()
    for collection in followed:
        threading.Thread(target=report, args=(client, collection, news), daemon=True).start()
    keep(followed, news)


def report(client: Client, collection: Collection, news: News) -> None:
    """Put what there is of a collection into `news`, again after each change; or an error that should not be."""
    try:
        for objects in versions(client, collection.path, collection.query):
            news.put((collection, objects))
    except Exception as error:
        news.put((collection, error))


def versions(client: Client, path: str, query: Mapping[str, str]) -> Iterator[Objects]:
    """All objects of a collection by uid, again after each change, without end."""
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
                    if event["type"] == "ERROR":  # most likely the version is too old to continue from
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
            say(f"listing {path} again: {error}")
            time.sleep(RETRY_SECONDS)


def keep(followed: Sequence[Collection], news: News) -> None:
    """Keep the table as the newest objects want it; a burst of news is one replacement."""
    newest: dict[Collection, Objects] = {}
    applied = ""
    while True:
        collection, objects = news.get()
        if isinstance(objects, Exception):
            raise objects
        newest[collection] = objects
        if not news.empty() or len(newest) < len(followed):
            continue
        content: dict[str, list[Mapping[str, Any]]] = {}
        for one in followed:
            content.setdefault(one.kind, []).extend(newest[one].values())
        table = Table.of(**content)
        if table.commands != applied:
            began = time.monotonic()
            subprocess.run(["nft", "--file", "-"], input=table.commands, text=True, check=True)
            applied = table.commands
            milliseconds = (time.monotonic() - began) * 1000
            say(f"{len(table.policies)} policies and {len(table.pods)} pods, applied in {milliseconds:.0f} ms")


def is_enforcing(cluster: Cluster) -> bool:
    """Whether the table is in force in the node's network namespace."""
    command = ["nsenter", f"--net={cluster.netns}", "--", "nft", "list", "table", *TABLE.split()]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


if __name__ == "__main__":
    main()
