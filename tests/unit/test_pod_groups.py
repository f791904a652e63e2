"""PodGroups of Kubernetes on API servers that serve different versions of them."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from horovodjob.api.constants import Gang
from horovodjob_operator.controller.children.pod_groups import PodGroups
from horovodjob_operator.errors import NotServed
from horovodjob_operator.kube.requests.reader import Reader
from horovodjob_operator.kube.requests.writer import Writer
from unit.domain.fake_cluster import training_job
from unit.served_api import client_of

JOB = training_job(scheduling={"gang": "Native"})
GROUP = "/apis/scheduling.k8s.io"


class VersionedServer:
    """Serves PodGroups in these versions, and PriorityClasses in v1. It records its requests."""

    def __init__(self) -> None:
        self.versions: list[str] = []
        self.asked: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.method} {request.path}")
        if request.path == GROUP:
            return web.json_response({"versions": [{"version": version} for version in ("v1", *self.versions)]})
        version = request.path.removeprefix(f"{GROUP}/").partition("/")[0]
        return web.json_response({"metadata": {}, "items": []}, status=200 if version in self.versions else 404)


@pytest.fixture
def server() -> VersionedServer:
    return VersionedServer()


@pytest.fixture
async def pod_groups(server: VersionedServer) -> AsyncIterator[PodGroups]:
    async with client_of(server.answer) as client:
        yield PodGroups(Writer(client, "test"), Reader(client))


async def api_version(pod_groups: PodGroups) -> str:
    body = await pod_groups.body(JOB)
    assert body is not None
    return str(body["apiVersion"])


@pytest.mark.parametrize("version", ["v1alpha2", "v1beta1"])
async def test_the_group_of_each_job_has_the_version_that_is_served_which_is_read_once(
    server: VersionedServer, pod_groups: PodGroups, version: str
) -> None:
    server.versions = [version]
    assert {await api_version(pod_groups) for _ in range(2)} == {f"scheduling.k8s.io/{version}"}
    assert server.asked == [f"GET {GROUP}"]
    assert await pod_groups.body(training_job()) is None


async def test_a_group_is_deleted_in_the_new_version_after_an_upgrade_of_the_cluster(
    server: VersionedServer, pod_groups: PodGroups
) -> None:
    server.versions = ["v1alpha2"]
    await pod_groups.delete(JOB, Gang.NATIVE)
    server.versions = ["v1beta1"]
    await pod_groups.delete(JOB, Gang.NATIVE)
    assert server.asked[-1] == f"DELETE {GROUP}/v1beta1/namespaces/team/podgroups"
    assert await api_version(pod_groups) == "scheduling.k8s.io/v1beta1"


async def test_a_cluster_without_the_kind_is_asked_again_each_time(
    server: VersionedServer, pod_groups: PodGroups
) -> None:
    for _ in range(2):
        with pytest.raises(NotServed):
            await pod_groups.body(JOB)
    server.versions = ["v1beta1"]
    assert await api_version(pod_groups) == "scheduling.k8s.io/v1beta1"
