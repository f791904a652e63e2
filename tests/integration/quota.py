"""A quota of pods."""

from support.api_client import Api


class Quota:
    """A quota of pods in the namespace of the test. Its controller needs seconds, so the test writes its status."""

    def __init__(self, api: Api, namespace: str, pods: int) -> None:
        self._api, quotas = api, f"/api/v1/namespaces/{namespace}/resourcequotas"
        self._path = f"{quotas}/few"
        body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}}
        api.create(quotas, {**body, "spec": {"hard": {"pods": str(pods)}}})
        api.patch(f"{self._path}/status", {"status": {"hard": {"pods": str(pods)}, "used": {"pods": "0"}}})

    def change(self, pods: int) -> None:
        hard = {"hard": {"pods": str(pods)}}
        self._api.patch(self._path, {"spec": hard})
        self._api.patch(f"{self._path}/status", {"status": hard})
