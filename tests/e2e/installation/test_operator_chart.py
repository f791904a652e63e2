"""The operator as a Helm release: changed, rolled back, removed and installed again under a running job."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.access import Kubectl, wait_for
from e2e.install import CHART, RELEASE, SYSTEM, Operator, install_operator, operator_values
from e2e.namespace import HELD, Namespace
from support.api_client import Api
from support.helm import Helm

# It removes the operator and installs another release.
pytestmark = pytest.mark.serial

MINUTES = "--timeout=15m"


def log_level(api: Api, namespace: str, deployment: str) -> str:
    """The log level of an operator, from its Deployment."""
    found = api.find(f"/apis/apps/v1/namespaces/{namespace}/deployments/{deployment}") or {}
    variables = found["spec"]["template"]["spec"]["containers"][0]["env"]
    return str(next(one["value"] for one in variables if one["name"] == "HOROVODJOB_OPERATOR_LOG_LEVEL"))


def test_a_job_survives_upgrade_rollback_and_removal_and_an_operator_installed_by_helm_3_continues_it(
    namespace: Namespace,
    new_namespace: Callable[..., Namespace],
    operator: Operator,
    helm: Helm,
    helm3: Helm,
    kubectl: Kubectl,
    images: dict[str, str],
) -> None:
    namespace.apply(namespace.job("train", HELD))
    namespace.wait_phase("train", "Running")
    own = ("--namespace", SYSTEM, "--wait", MINUTES)
    debug = ("--reuse-values", "--set=operator.logLevel=DEBUG")
    helm("upgrade", RELEASE, str(CHART), *own, *debug)
    assert log_level(namespace.api, SYSTEM, RELEASE) == "DEBUG"
    helm("rollback", RELEASE, *own)
    assert log_level(namespace.api, SYSTEM, RELEASE) == "INFO"
    helm("uninstall", RELEASE, *own)
    try:
        wait_for("no operator", lambda: not operator.pods.now)
        team = new_namespace("team")
        own = ("--namespace", team.name, "--wait", MINUTES)
        values = (*operator_values(images), "--set", f"watchNamespaces={{{namespace.name}}},crds.enabled=false")
        helm3("install", "team", str(CHART), *own, *values)
        helm3("upgrade", "team", str(CHART), *own, *debug)
        helm3("rollback", "team", *own)
        assert log_level(namespace.api, team.name, "team-horovodjob-operator") == "INFO"
        assert "Succeeded" in helm3("test", "team", "--namespace", team.name, MINUTES)
        namespace.release("train-worker-0")
        assert namespace.wait_phase("train", "Succeeded")["attempt"] == 1
        helm3("uninstall", "team", *own)
        team.remove()
    finally:
        install_operator(helm, kubectl, images)
        operator.running()
    assert namespace.find("train"), "the CRD and its jobs stay"
    assert len(namespace.pods_ever("train")) == 2
