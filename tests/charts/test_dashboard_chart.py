"""The dashboard in the operator's chart: what its pods may do, and who reaches them."""

from __future__ import annotations

import json

import yaml

from charts.test_operator_chart import CHART, is_dashboard
from horovodjob_dashboard.page_settings import LinkTemplate, Price
from support.api_client import Api, Object
from support.helm import Helm

ENABLED = ("x", str(CHART), "--namespace", "system", "--set", "dashboard.enabled=true")
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


def dashboard(helm: Helm, *values: str) -> dict[str, Object]:
    """The dashboard's objects by kind."""
    settings = [part for value in values for part in ("--set", value)]
    found = [each for each in helm.objects(*ENABLED, *settings) if is_dashboard(each)]
    assert len({each["kind"] for each in found}) == len(found)
    return {each["kind"]: each for each in found}


def test_the_dashboard_has_an_account_without_rights_and_no_token(helm4: Helm) -> None:
    objects = dashboard(helm4)
    account = objects["ServiceAccount"]
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    assert (account["automountServiceAccountToken"], pod["automountServiceAccountToken"]) == (False, False)
    name = account["metadata"]["name"]
    assert pod["serviceAccountName"] == name
    bindings = [each for each in helm4.objects(*ENABLED) if each["kind"].endswith("Binding") and "subjects" in each]
    assert bindings
    assert name not in {subject["name"] for each in bindings for subject in each["subjects"]}
    (volume,) = pod["volumes"]
    assert volume["configMap"] == {"name": "kube-root-ca.crt"}
    assert "env" not in pod["containers"][0]


def test_objects_of_the_operator_do_not_select_pods_of_the_dashboard(helm4: Helm) -> None:
    values = ["metrics.podMonitor.enabled=true", "metrics.serviceMonitor.enabled=true"]
    labels = dashboard(helm4)["Deployment"]["spec"]["template"]["metadata"]["labels"]
    objects = helm4.objects(*ENABLED, *[part for value in values for part in ("--set", value)])

    def selects(each: Object) -> bool:
        spec = each.get("spec", {})
        selector = spec.get("podSelector") or spec.get("selector") or {}
        return (selector.get("matchLabels") or selector).items() <= labels.items() and bool(selector)

    selecting = {(each["kind"], each["metadata"]["name"].rpartition("-")[2]) for each in objects if selects(each)}
    assert selecting == {(kind, "dashboard") for kind in ("Deployment", "Service", "NetworkPolicy")}


def test_the_network_policy_admits_the_named_peers_only(helm4: Helm) -> None:
    nobody = dashboard(helm4)["NetworkPolicy"]["spec"]
    assert ("ingress" in nobody, set(nobody["policyTypes"])) == (False, {"Ingress", "Egress"})
    assert "NetworkPolicy" not in dashboard(helm4, "dashboard.networkPolicy.enabled=false")
    peer = "dashboard.from[0].namespaceSelector.matchLabels.team=web"
    spec = dashboard(helm4, peer)["NetworkPolicy"]["spec"]
    from_ = [{"namespaceSelector": {"matchLabels": {"team": "web"}}}]
    assert spec["ingress"] == [{"ports": [{"port": "http"}], "from": from_}]
    assert set(spec["policyTypes"]) == {"Ingress", "Egress"}


def test_the_dashboard_answers_as_localhost_only_where_no_other_address_is_configured(helm4: Helm) -> None:
    for values, url in (
        ((), "http://localhost"),
        (("dashboard.urls={https://a.example.com}",), "https://a.example.com"),
    ):
        (container,) = dashboard(helm4, *values)["Deployment"]["spec"]["template"]["spec"]["containers"]
        assert [each for each in container["args"] if each.startswith("--url")] == [f"--url={url}"]


def test_several_pods_need_a_proxy_that_signs_viewers_in(helm4: Helm) -> None:
    values = ["dashboard.replicas=2", "dashboard.tokenHeader=Authorization"]
    assert "sessions are in the memory" in helm4.refusal("template", *ENABLED, "--set", values[0])
    deployment = dashboard(helm4, *values)["Deployment"]["spec"]
    assert deployment["replicas"] == 2
    assert "--token-header=Authorization" in deployment["template"]["spec"]["containers"][0]["args"]


def test_links_and_a_price_are_arguments_that_the_dashboard_accepts(helm4: Helm) -> None:
    address = "https://grafana.example.com/d/jobs?var-namespace={namespace}&var-name={name}"
    settings: dict[str, object] = {
        "links": {"Grafana": address, "TensorBoard": "https://b.example.com/"},
        "gpuHourPrice": "2.90 EUR",
    }
    settings["spotGpuHourPrice"] = "0.90 EUR"
    given = [part for key, value in settings.items() for part in ("--set-json", f"dashboard.{key}={json.dumps(value)}")]
    (deployment,) = (
        each for each in helm4.objects(*ENABLED, *given) if is_dashboard(each) and each["kind"] == "Deployment"
    )
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    arguments = [each.partition("=") for each in container["args"]]
    assert [LinkTemplate.parse(text) for name, _, text in arguments if name == "--link"] == [
        LinkTemplate("Grafana", address),
        LinkTemplate("TensorBoard", "https://b.example.com/"),
    ]
    assert [str(Price.parse(text)) for name, _, text in arguments if name == "--gpu-hour-price"] == ["2.9 EUR"]
    assert [text for name, _, text in arguments if name == "--spot-gpu-hour-price"] == ["0.90 EUR"]


def test_a_link_to_no_web_page_a_price_that_is_none_and_an_address_with_a_path_are_refused(helm4: Helm) -> None:
    links = {"script": "javascript:alert(1)", "user": "https://u@a.example/", "a=b": "https://a.example/"}
    wrong = {"links": links, "gpuHourPrice": "cheap", "urls": ["https://jobs.example.com/path"]}
    values = [word for key, value in wrong.items() for word in ("--set-json", f"dashboard.{key}={json.dumps(value)}")]
    refusal = helm4.refusal("template", *ENABLED, *values)
    assert [word for word in ("script", "user", "a=b", "gpuHourPrice", "urls/0") if word not in refusal] == []


def test_the_server_admits_the_pods_at_the_level_restricted(helm4: Helm, api: Api) -> None:
    api.create("/api/v1/namespaces", {"metadata": {"name": "restricted", "labels": RESTRICTED}})
    objects = dashboard(helm4)
    account, deployment = objects["ServiceAccount"], objects["Deployment"]
    pod = {"metadata": {"name": "dashboard"}, "spec": deployment["spec"]["template"]["spec"]}
    for each, kind in ((account, "ServiceAccount"), (pod, "Pod")):
        each |= {"kind": kind, "apiVersion": "v1"}
        each["metadata"].pop("namespace", None)
        done = api.kubectl("create", "--namespace", "restricted", "-f", "-", stdin=yaml.safe_dump(each))
        assert done.returncode == 0, done.stderr
    created = api.get("/api/v1/namespaces/restricted/pods/dashboard")["spec"]
    mounted = [each["mountPath"] for each in created["containers"][0]["volumeMounts"]]
    assert mounted == ["/etc/horovodjob/kubernetes"]
