"""An operator that watches some namespaces, with Roles in the place of a ClusterRole."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from api.client import Api, Object, wait_for
from horovodjob_operator.controller.kopf_settings import kopf_settings
from integration.control_plane import OPERATOR_NAMESPACE, make_namespace, operator_kubeconfig
from integration.job_driver import submit
from integration.operator_process import Operator

ACCOUNT = "limited"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def namespaces(api: Api, namespace: str) -> Iterator[tuple[str, str, str]]:
    """Two namespaces that the operator is to watch, and one that it is not to."""
    others = (f"{namespace}-b", f"{namespace}-c")
    for name in others:
        make_namespace(api, name)
    yield (namespace, *others)
    for name in others:
        api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def permit(api: Api) -> Callable[[str], None]:
    """Gives the operator's rights to its service account, in one namespace."""

    def permitted(namespace: str) -> None:
        rules = api.get(f"{RBAC}/clusterroles/horovodjob-operator")["rules"]
        metadata = {"name": ACCOUNT}
        api.create(f"{RBAC}/namespaces/{namespace}/roles", {"metadata": metadata, "rules": rules})
        subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": OPERATOR_NAMESPACE}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT}
        binding = {"metadata": metadata, "roleRef": role, "subjects": [subject]}
        api.create(f"{RBAC}/namespaces/{namespace}/rolebindings", binding)

    return permitted


@pytest.fixture
def namespaced_operator(
    api: Api,
    operator_process: Operator,
    operator_access: Path,
    namespaces: tuple[str, str, str],
    permit: Callable[[str], None],
) -> Iterator[Operator]:
    """An operator for the first two namespaces, with rights in the first only."""
    operator_process.kill()
    accounts = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/serviceaccounts"
    if not api.find(f"{accounts}/{ACCOUNT}"):
        api.create(accounts, {"metadata": {"name": ACCOUNT}})
    permit(namespaces[0])
    kubeconfig = operator_kubeconfig(api, operator_access.with_name(ACCOUNT), ACCOUNT)
    operator = Operator(kubeconfig, operator_access.with_name("limited.log"), namespaces=",".join(namespaces[:2]))
    yield operator.start()
    operator.kill()


def refusals(operator: Operator, namespace: str) -> list[Object]:
    """What the operator has logged about rights that it lacks in a namespace."""
    return [line for line in operator.new_log_lines() if f'in the namespace "{namespace}"' in line["message"]]


def test_an_operator_reconciles_jobs_of_its_namespaces_only(
    api: Api, namespaced_operator: Operator, namespaces: tuple[str, str, str], permit: Callable[[str], None]
) -> None:
    own, forbidden, other = namespaces
    foreign = submit(api, other)
    submit(api, own).advance_to("Succeeded")

    waiting = submit(api, forbidden)
    wait_for("several tries", lambda: namespaced_operator.metrics().get(_forbidden("pods"), 0) >= 3)
    logged = refusals(namespaced_operator, forbidden)
    assert sorted(line["message"].split(":")[0] for line in logged) == ["job watch", "pod watch"], "each once"
    assert waiting.phase == ""
    permit(forbidden)
    waiting.advance_to("Succeeded")
    assert foreign.phase == ""
    assert namespaced_operator.get("/readyz")[0] == 200


def test_kopf_retries_a_request_without_limit() -> None:
    backoffs = kopf_settings(240).networking.error_backoffs
    assert isinstance(backoffs, Iterable)
    assert len(list(itertools.islice(backoffs, 10_000))) == 10_000


def _forbidden(resource: str) -> str:
    return f'horovodjob_operator_api_requests_total{{code="403",resource="{resource}",verb="list"}}'
