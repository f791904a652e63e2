"""The dashboard from the chart, opened through its Service."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator

import pytest
import requests

from e2e.access import Kubectl, wait_for
from e2e.install import CHART
from e2e.namespace import HELD, Namespace
from support.helm import Helm

RELEASE = "page"
SERVICE = f"{RELEASE}-horovodjob-operator-dashboard"
# The dashboard without a second operator beside it.
VALUES = (
    "replicas=0",
    "crds.enabled=false",
    "rbac.create=false",
    "rbac.admissionPolicy=false",
    "dashboard.enabled=true",
)
FORWARDS = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")
SECONDS = 60


@contextlib.contextmanager
def forwarded(kubectl: Kubectl, namespace: str) -> Iterator[str]:
    """The address of the Service on this machine, as the notes of the chart say."""
    command = [kubectl.program, "--namespace", namespace, "port-forward", f"service/{SERVICE}", ":80"]
    environment = os.environ | {"KUBECONFIG": str(kubectl.kubeconfig)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        found = FORWARDS.match(process.stdout.readline())
        assert found
        yield f"http://localhost:{found[1]}"
        process.terminate()


def test_the_dashboard_of_the_chart_shows_a_viewer_what_their_token_may_see(
    namespace: Namespace, helm: Helm, kubectl: Kubectl, images: dict[str, str]
) -> None:
    namespace.apply(namespace.job("train", HELD))
    repository, _, tag = images["dashboard"].rpartition(":")
    values = (*VALUES, f"dashboard.image.repository={repository}", f"dashboard.image.tag={tag}")
    own = ("--namespace", namespace.name)
    helm("install", RELEASE, str(CHART), *own, "--set", ",".join(values), "--wait", "--timeout=15m")
    kubectl(*own, "create", "serviceaccount", "viewer")
    kubectl(*own, "create", "rolebinding", "viewer", "--clusterrole=view", f"--serviceaccount={namespace.name}:viewer")
    token = kubectl(*own, "create", "token", "viewer").strip()
    with pytest.raises(AssertionError, match="No such file"):
        kubectl(*own, "exec", f"deployment/{SERVICE}", "--", "ls", "/var/run/secrets/kubernetes.io")
    with pytest.raises(AssertionError):
        kubectl(*own, "auth", "can-i", "list", "horovodjobs", f"--as=system:serviceaccount:{namespace.name}:{SERVICE}")
    with forwarded(kubectl, namespace.name) as origin, requests.Session() as browser:
        page = f"{origin}/?namespace={namespace.name}"
        assert browser.get(page, timeout=SECONDS).status_code == 401
        headers = {"Origin": origin}
        signed_in = browser.post(f"{origin}/sign-in", data={"token": token}, headers=headers, timeout=SECONDS)
        secret = re.search(r'name="page-secret" content="([^"]+)"', signed_in.text)
        assert (signed_in.status_code, secret is None) == (200, False)
        assert "train" not in browser.get(page, timeout=SECONDS).text  # the cookie alone opens no page
        browser.headers["X-HorovodJob-Page"] = str(secret and secret[1])
        chosen = browser.get(f"{origin}/", timeout=SECONDS)
        assert (chosen.status_code, "Choose a namespace" in chosen.text) == (403, True)
        namespace.wait_phase("train", "Running")
        wait_for("the job", lambda: re.search("train.*Running", browser.get(page, timeout=SECONDS).text, re.DOTALL))
        details = browser.get(f"{origin}/jobs/{namespace.name}/train", timeout=SECONDS)
        assert "train-launcher" in details.text
        assert "is forbidden" not in details.text
        assert browser.get(f"{origin}/?namespace=kube-system", timeout=SECONDS).status_code == 403
    helm("uninstall", RELEASE, *own, "--wait", "--timeout=15m")
    namespace.release("train-worker-0")
    assert namespace.wait_phase("train", "Succeeded")
