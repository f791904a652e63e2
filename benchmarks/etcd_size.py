"""The size of etcd's database, by its JSON gateway (https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/)."""

import base64
import json
import ssl
import urllib.request
from typing import Any

from localcluster.control_plane.components import ControlPlaneSettings


def compacted_size_mb(settings: ControlPlaneSettings) -> float:
    """The part of the database that is in use after a compaction, which deletes the former versions of all objects."""
    revision = call(settings, "kv/range", {"key": base64.b64encode(b"/").decode()})["header"]["revision"]
    call(settings, "kv/compaction", {"revision": revision, "physical": True})
    return int(call(settings, "maintenance/status", {})["dbSizeInUse"]) / 1e6


def call(settings: ControlPlaneSettings, method: str, body: dict[str, Any]) -> dict[str, Any]:
    """The answer of a method of the gateway."""
    pki = settings.pki
    context = ssl.create_default_context(cafile=str(pki / "etcd-ca.crt"))
    context.load_cert_chain(pki / "etcd-client.crt", pki / "etcd-client.key")
    url = f"https://127.0.0.1:{settings.etcd_client_port}/v3/{method}"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode()), context=context) as answer:
        found: dict[str, Any] = json.load(answer)
        return found
