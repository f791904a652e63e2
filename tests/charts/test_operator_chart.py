"""The operator's chart as Helm 3 and 4 render it: values, their schema, and their effect."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from charts.readme import documented_values, readme
from horovodjob.api.crd import NEVER_PRUNED
from horovodjob.api.spec import HorovodJobSpec
from horovodjob_operator.settings import Settings
from horovodjob_release.version import project_version
from support.api_client import BASE, ROOT, Object
from support.helm import Helm, operator_images

CHART = ROOT / "charts" / "horovodjob-operator"
ALL = CHART / "ci" / "all-values.yaml"
RENDERED = ("all", str(CHART), "--namespace", "team-a", "--values", str(ALL))
REVIEWS = ("tokenreviews", "subjectaccessreviews")
# Values that other values override, and values that are templates.
THRESHOLDS = "metrics.prometheusRule.namespaceThresholds"
OTHERWISE = {"image.tag", "dashboard.image.tag", "podDisruptionBudget.maxUnavailable", "extraObjects", THRESHOLDS}


def of_kind(objects: list[Object], kind: str) -> Object:
    """The only object of a kind that is neither part of `helm test` nor of the dashboard."""
    own = [each for each in objects if each["kind"] == kind and not is_hook(each) and not is_dashboard(each)]
    assert len(own) == 1, f"{len(own)} objects of kind {kind}"
    return own[0]


def named_like(objects: list[Object], other: Object) -> Object:
    """The object with the kind and the name of another."""
    kind, name = other["kind"], other["metadata"]["name"]
    return next(each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name))


def is_dashboard(each: Object) -> bool:
    """Whether an object is part of the dashboard."""
    labels: Object = each["metadata"].get("labels", {})
    return bool(labels.get("app.kubernetes.io/component") == "dashboard")


def is_hook(each: Object) -> bool:
    """Whether an object is part of `helm test`."""
    return "helm.sh/hook" in each["metadata"].get("annotations", {})


def variables(objects: list[Object]) -> dict[str, str]:
    """The operator's variables that have a value."""
    container = of_kind(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def leaves(value: Any) -> Iterator[str]:
    """Strings and numbers in a value, without booleans."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner)
            yield key
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    elif isinstance(value, str | int) and not isinstance(value, bool):
        yield str(value)


def test_helm_lint_passes(helm: Helm) -> None:
    helm("lint", "--strict", str(CHART))
    helm("lint", "--strict", str(CHART), "--values", str(ALL))


def test_supported_versions_render_all_values_and_an_older_cluster_is_rejected(helm: Helm) -> None:
    for version in ("1.31.0", "1.36.3"):
        assert of_kind(helm.objects(*RENDERED, "--kube-version", version), "Deployment")
    assert ">=1.31.0-0" in helm.refusal("template", "x", str(CHART), "--kube-version", "1.30.9")


def test_names_that_yaml_parses_as_booleans_and_numbers_stay_strings(helm4: Helm) -> None:
    names = "fullnameOverride=on,nameOverride=1,watchNamespaces={1,2e3}"
    rendered = helm4.objects("y", str(CHART), "--namespace", "on", "--set-string", names)

    def wrong(value: Any, path: str) -> Iterator[str]:
        if isinstance(value, dict):
            for key, inner in value.items():
                is_name = key in ("name", "namespace", "value", "serviceAccountName") or "/" in key
                yield from (
                    [f"{path}.{key}"] if is_name and not isinstance(inner, str) else wrong(inner, f"{path}.{key}")
                )
        elif isinstance(value, list):
            for inner in value:
                yield from wrong(inner, path)

    own = [each for each in rendered if each["kind"] != "CustomResourceDefinition"]
    assert [path for each in own for path in wrong(each, each["kind"])] == []


def test_every_value_is_documented_and_reaches_an_object(helm4: Helm) -> None:
    assert (CHART / "README.md").read_text() == readme(CHART), "the chart's README.md is out of date: run `make docs`"
    text = helm4("template", *RENDERED)
    rendered = text.replace('\\"', '"')
    given = yaml.safe_load(ALL.read_text())
    for path, _, comment in documented_values((CHART / "values.yaml").read_text()):
        assert comment, f"{path} is not documented"
        at: Any = given
        for key in path.split("."):
            assert key in at, f"{path} is not in {ALL.name}"
            at = at[key]
        if path not in OTHERWISE:
            assert [leaf for leaf in leaves(at) if leaf not in rendered] == [], path
    for of_templates in ("all-extra-object", "slow-namespace", "86417"):
        assert of_templates in rendered
    rule = of_kind([each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each], "PrometheusRule")
    assert re.findall(r"<\w+>", yaml.safe_dump(rule)) == [], "words of the template of the rules"


def test_the_crd_equals_that_of_the_manifests(helm4: Helm) -> None:
    assert (CHART / "files" / "crd.yaml").read_text() == (BASE / "crd.yaml").read_text(), "run `make crd`"
    kept, given_up = helm4.objects("x", str(CHART)), helm4.objects("x", str(CHART), "--set", "crds.keep=false")
    for shipped in yaml.safe_load_all((BASE / "crd.yaml").read_text()):
        rendered = named_like(kept, shipped)
        assert rendered["metadata"]["annotations"] == NEVER_PRUNED | {"helm.sh/resource-policy": "keep"}
        assert shipped["metadata"]["annotations"] == NEVER_PRUNED
        assert rendered["spec"] == shipped["spec"]
        assert "annotations" not in named_like(given_up, shipped)["metadata"]


def test_the_schema_is_closed_at_every_level_and_has_every_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    def open_ends(part: Object, values: Any, path: str) -> Iterator[str]:
        part = schema["definitions"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
        if "properties" in part and part.get("additionalProperties") is not False:
            yield f"{path} accepts unknown keys"
        for key, value in values.items() if isinstance(values, dict) else ():
            if "properties" in part and key not in part["properties"]:
                yield f"{path}.{key} has no schema"
            elif "properties" in part:
                yield from open_ends(part["properties"][key], value, f"{path}.{key}")

    assert list(open_ends(schema, yaml.safe_load(ALL.read_text()), "")) == []


def test_unknown_and_invalid_values_are_rejected_with_their_paths(helm: Helm) -> None:
    unknown = ("replica=3", "image.tags=1", "metrics.podMonitor.labls.a=b", "jobDefaults.tolerations[0].kye=sku")
    wrong = ("replicas=many", "watchNamespaces={Team_A}", "operator.logLevel=LOUD")
    # Those that the API server would refuse later.
    refused = (
        "fullnameOverride=a.b",
        "image.repository=operator:1",
        "podLabels.team=a b",
        "resources.limits.memory=1ki",
    )
    options = [word for value in (*unknown, *wrong, *refused) for word in ("--set", value)]
    refusal = helm.refusal("template", "x", str(CHART), *options).replace(".", "/")
    words = ["replica'", "tags'", "labls'", "kye'", "/replicas", "/watchNamespaces/0", "/logLevel"]
    words += ["/fullnameOverride", "/image/repository", "/podLabels/team", "/resources/limits/memory"]
    assert [word for word in words if word not in refusal] == []


def test_job_defaults_are_a_setting_that_the_operator_accepts(helm4: Helm) -> None:
    settings = Settings.from_environment(variables(helm4.objects(*RENDERED)))
    assert settings.defaults.shm_size == "3Gi"
    assert settings.defaults.mount_options == ("actimeo=7", "nosharesock")
    assert settings.defaults.tolerations[0].value == "vision"
    assert settings.watched_namespaces == ("default", "team-a")
    objects = helm4.objects("x", str(CHART), "--set", "jobDefaults.nodeSelector=null,jobDefaults.image=null")
    assert "HOROVODJOB_OPERATOR_JOB_DEFAULTS" not in variables(objects)


@pytest.mark.parametrize(
    ("values", "image", "gpu_image"),
    [
        ("image.registry=a.io/b/", "a.io/b/horovodjob/trainer:{}", "a.io/b/horovodjob/trainer-gpu:{}"),
        ("image.registry=a.io,jobDefaults.image=mine:1", "mine:1", "mine:1"),
        ("jobDefaults.image=null", "", ""),
    ],
)
def test_the_default_image_of_jobs_follows_the_registry(helm4: Helm, values: str, image: str, gpu_image: str) -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    defaults = Settings.from_environment(variables(helm4.objects("x", str(CHART), "--set", values))).defaults
    documents = [{"image": "", "command": ["train"], "worker": {"gpus": gpus}} for gpus in (0, 1)]
    jobs = map(HorovodJobSpec.model_validate, documents)
    assert [defaults.apply_to(job).image for job in jobs] == [image.format(version), gpu_image.format(version)]


def test_operator_and_jobs_run_on_nodes_for_which_the_images_are_built(helm4: Helm) -> None:
    built_for = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    values = "jobDefaults.nodeSelector.pool=gpu,nodeSelector.pool=system,nodeSelector.kubernetes\\.io/arch=arm64"
    for options, job_labels, operator_labels in (
        ((), built_for, built_for),
        (
            ("--set", values),
            {**built_for, "pool": "gpu"},
            {**built_for, "pool": "system", "kubernetes.io/arch": "arm64"},
        ),
    ):
        objects = helm4.objects("x", str(CHART), *options)
        assert Settings.from_environment(variables(objects)).defaults.node_selector == job_labels
        assert of_kind(objects, "Deployment")["spec"]["template"]["spec"]["nodeSelector"] == operator_labels


def test_an_operator_of_some_namespaces_has_its_rights_on_queues_in_them_only(helm4: Helm) -> None:
    def resources(rules: list[Object]) -> set[str]:
        return {name for rule in rules for name in rule["resources"]}

    objects = helm4.objects("x", str(CHART), "--set", "kueue.enabled=true,watchNamespaces={a,b}")
    of_queues = [each for each in objects if each["metadata"]["name"].endswith("-queues")]
    bound = {
        (each["kind"], each["metadata"].get("namespace"), each["roleRef"]["kind"], each["roleRef"]["name"])
        for each in of_queues
        if each["kind"].endswith("Binding")
    }
    own, of_cluster = "x-horovodjob-operator-queues", "default:x-horovodjob-operator-queues"
    assert bound == {
        ("RoleBinding", "a", "Role", own),
        ("RoleBinding", "b", "Role", own),
        ("ClusterRoleBinding", None, "ClusterRole", of_cluster),
    }
    (cluster_role,) = (each for each in of_queues if each["kind"] == "ClusterRole")
    roles = [each for each in of_queues if each["kind"] == "Role"]
    assert {each["metadata"]["namespace"] for each in roles} == {"a", "b"}
    # Resources without a namespace, which the Role of a namespace cannot grant.
    assert resources(cluster_role["rules"]) == {"resourceflavors", "workloadpriorityclasses", "priorityclasses"}
    for role in roles:
        assert resources(role["rules"]) == {"workloads", "workloads/status", "localqueues/pendingworkloads"}
    everywhere = helm4.objects("x", str(CHART), "--set", "kueue.enabled=true")
    (all_rights,) = (one for one in everywhere if (one["kind"], one["metadata"]["name"]) == ("ClusterRole", own))
    assert resources(all_rights["rules"]) == resources(cluster_role["rules"]) | resources(roles[0]["rules"])


def test_an_operator_of_namespaces_with_a_label_reads_namespaces(helm4: Helm) -> None:
    objects = helm4.objects("x", str(CHART), "--set", "watchNamespaceSelector=team in (a\\,b)")
    settings = Settings.from_environment(variables(objects))
    assert (settings.namespace_selector, settings.watched_namespaces) == ("team in (a,b)", ())
    role = next(each for each in objects if each["metadata"]["name"] == "default:x-horovodjob-operator")
    assert {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]} in role["rules"]
    of_all = helm4.objects("x", str(CHART))
    rules = [rule for each in of_all if each["kind"] == "ClusterRole" for rule in each["rules"]]
    assert not [rule for rule in rules if "namespaces" in rule.get("resources", ())]


CONTRADICTIONS = {
    '{"metrics": {"prometheusRule": {"enabled": true}}}': "or metrics.prometheusRule.selector for a scrape",
    '{"metrics": {"tls": {"enabled": false, "certManager": {"enabled": true}}}}': "are served over plain HTTP: set",
    '{"extraContainers": [{"name": "a"}], "extraInitContainers": [{"name": "a"}]}': "has a twice: remove one of them",
    '{"watchNamespaceSelector": "a", "watchNamespaces": ["b"]}': "are both set",
    '{"leaderElection": {"enabled": false}}': "set replicas to 1",
    '{"rbac": {"scope": "namespace"}}': "name the namespaces",
    '{"metrics": {"serviceMonitor": {"enabled": true}, "service": {"enabled": false}}}': "needs a Service",
    '{"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}}': "has no strategy.rollingUpdate: remove one",
    '{"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}}': "no pod could be replaced: raise one",
    '{"podDisruptionBudget": {"maxUnavailable": null}}': "has neither minAvailable nor maxUnavailable: set one",
    '{"image": {"registry": "a.example.com", "repository": "b.example.com/operator"}}': "would have two registries",
    '{"fullnameOverride": "1st"}': "the name of a Service begins with a letter: set fullnameOverride",
    '{"commonLabels": {"app.kubernetes.io/name": "a"}}': "commonLabels has the label app.kubernetes.io/name, which the",
    '{"extraEnv": [{"name": "HOROVODJOB_OPERATOR_LOG_LEVEL"}]}': "LOG_LEVEL, which the chart sets: use the value",
    '{"extraEnv": [{"name": "A", "value": "", "valueFrom": {"fieldRef": {}}}]}': "both value and valueFrom for A",
    '{"metrics": {"podMonitor": {"endpoint": {"interval": "1s"}}}}': "metrics.podMonitor.endpoint has interval, which",
    '{"dnsPolicy": "None"}': "needs a name server: set dnsConfig.nameservers",
    '{"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}': "remove the value, or set",
}


@pytest.mark.parametrize("values", CONTRADICTIONS)
def test_contradictory_values_are_rejected_with_a_remedy(values: str, helm4: Helm) -> None:
    assert CONTRADICTIONS[values] in helm4.refusal("template", "x", str(CHART), "--values=-", stdin=values)


def test_labels_of_an_object_nulls_and_one_replica_override_what_the_chart_sets(helm4: Helm) -> None:
    values = {
        "replicas": 1,
        "commonLabels": {"team": "all"},
        "podLabels": {"team": "pods"},
        "serviceAccount": {"labels": {"team": "a"}},
        "livenessProbe": None,
        "podAnnotations": None,
        "image": {"registry": "a.example.com/"},
    }
    objects = helm4.objects("x", str(CHART), "--values=-", stdin=json.dumps(values))
    assert "PodDisruptionBudget" not in {each["kind"] for each in objects}
    assert of_kind(objects, "ServiceAccount")["metadata"]["labels"]["team"] == "a"
    deployment = of_kind(objects, "Deployment")
    assert deployment["metadata"]["labels"]["team"] == "all"
    template = deployment["spec"]["template"]
    assert template["metadata"]["labels"]["team"] == "pods"
    assert "annotations" not in template["metadata"]
    (container,) = template["spec"]["containers"]
    assert ("livenessProbe" in container, "readinessProbe" in container) == (False, True)
    images = operator_images(yaml.safe_dump_all(objects))
    assert f"a.example.com/horovodjob/trainer:{project_version(ROOT)}" in images, "the self-test"


def test_an_operator_of_some_namespaces_can_have_a_cluster_role(helm4: Helm) -> None:
    objects = helm4.objects("x", str(CHART), "--set", "rbac.scope=cluster,watchNamespaces={a,b}")
    roles = [each for each in objects if each["kind"] == "Role" and not is_hook(each)]
    assert {each["metadata"]["namespace"] for each in roles} == {"default"}
    assert [each for each in objects if each["metadata"]["name"] == "default:x-horovodjob-operator"]


@pytest.mark.parametrize(
    ("values", "reviews"),
    [
        ("operator.progress=true,metrics.authorization=false", {"tokenreviews"}),
        ("operator.progress=false,metrics.authorization=false,watchNamespaces={a}", set()),
    ],
)
def test_the_operator_has_the_rights_to_reviews_that_its_features_need(
    helm4: Helm, values: str, reviews: set[str]
) -> None:
    objects = helm4.objects("x", str(CHART), "--set", values)
    bound = {each["roleRef"]["name"] for each in objects if each["kind"] == "ClusterRoleBinding"}
    rules = [rule for each in objects if each["kind"] == "ClusterRole" for rule in each["rules"]]
    assert {name for rule in rules for name in rule.get("resources", ()) if name in REVIEWS} == reviews
    assert bound <= {each["metadata"]["name"] for each in objects if each["kind"] == "ClusterRole"}


MONITORS = "metrics.podMonitor.enabled=true,metrics.serviceMonitor.enabled=true"


def endpoints(objects: list[Object]) -> list[Object]:
    """The endpoints of both monitors."""
    (pods,) = of_kind(objects, "PodMonitor")["spec"]["podMetricsEndpoints"]
    (services,) = of_kind(objects, "ServiceMonitor")["spec"]["endpoints"]
    return [pods, services]


def test_monitors_send_a_token_that_may_only_read_the_metrics_and_the_rules_select_their_label_job(helm4: Helm) -> None:
    own = "metrics.prometheusRule.enabled=true,metrics.serviceMonitor.endpoint.relabelings[0].targetLabel=mine"
    objects = helm4.objects("x", str(CHART), "--namespace", "a", "--set", f"{MONITORS},{own}")
    of_pods, of_service = endpoints(objects)
    secret = of_kind(objects, "Secret")
    (container,) = of_kind(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    (service,) = (each for each in objects if each["kind"] == "Service" and "metrics" in each["metadata"]["name"])
    settings = Settings.from_environment(variables(objects))
    assert not settings.metrics_tls_directory
    for endpoint in (of_pods, of_service):
        assert endpoint["authorization"]["credentials"] == {"name": secret["metadata"]["name"], "key": "token"}
        name, port = endpoint["port"], settings.metrics_tls_port
        assert {"name": name, "containerPort": port} in container["ports"]
        assert service["spec"]["ports"] == [{"name": name, "port": port, "targetPort": name}]
        # A self-signed certificate cannot be verified.
        assert (endpoint["scheme"], endpoint["tlsConfig"]) == ("https", {"insecureSkipVerify": True})
    account = secret["metadata"]["annotations"]["kubernetes.io/service-account.name"]
    roles = [
        each["roleRef"]["name"]
        for each in objects
        if each["kind"].endswith("Binding") and each.get("subjects", [{}])[0].get("name") == account
    ]
    assert roles == ["x-horovodjob-operator-metrics-reader"]
    role = next(each for each in objects if each["kind"] == "ClusterRole" and each["metadata"]["name"] == roles[0])
    assert role["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]

    monitor = of_kind(objects, "PodMonitor")["metadata"]
    job = f"{monitor['namespace']}/{monitor['name']}"  # the Prometheus operator gives it to the series of a PodMonitor
    assert "relabelings" not in of_pods
    assert of_service["relabelings"] == [{"targetLabel": "job", "replacement": job}, {"targetLabel": "mine"}]
    rules = [rule["expr"] for group in of_kind(objects, "PrometheusRule")["spec"]["groups"] for rule in group["rules"]]
    of_operator = [expression for expression in rules if "horovodjob_" in expression]
    assert len(of_operator) == len(rules) - 1  # idle nodes are those of kube-state-metrics
    assert [expression for expression in of_operator if f'job="{job}"' not in expression] == []


def test_monitors_verify_the_certificate_of_a_secret_that_the_pods_mount_in_the_api_group_of_azure_too(
    helm4: Helm,
) -> None:
    values = f"{MONITORS},metrics.tls.secretName=own,metrics.podMonitor.endpoint.tlsConfig.serverName=b"
    values += ",metrics.monitorApiVersion=azmonitoring.coreos.com/v1"
    objects = helm4.objects("x", str(CHART), "--namespace", "a", "--set", values)
    of_pods, of_service = endpoints(objects)
    authority = {"secret": {"name": "own", "key": "ca.crt"}}
    assert of_service["tlsConfig"] == {"ca": authority, "serverName": "x-horovodjob-operator-metrics.a.svc"}
    assert of_pods["tlsConfig"] == {"serverName": "b"}, "the endpoint's own value"
    pod = of_kind(objects, "Deployment")["spec"]["template"]["spec"]
    (volume,) = (each["name"] for each in pod["volumes"] if each.get("secret") == {"secretName": "own"})
    (path,) = (each["mountPath"] for each in pod["containers"][0]["volumeMounts"] if each["name"] == volume)
    assert Settings.from_environment(variables(objects)).metrics_tls_directory == path
    monitor = of_kind(objects, "PodMonitor")
    assert monitor["apiVersion"] == "azmonitoring.coreos.com/v1"
    limits = [monitor["spec"][f"label{part}"] for part in ("Limit", "NameLengthLimit", "ValueLengthLimit")]
    assert limits == [63, 511, 1023]


@pytest.mark.parametrize("issuer", ["", "internal"], ids=["self-signed", "own issuer"])
def test_cert_manager_writes_the_secret_that_the_pods_mount(helm4: Helm, issuer: str) -> None:
    values = {"certManager": {"enabled": True, "issuerRef": {"name": issuer} if issuer else {}}}
    metrics = {"tls": values, "podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}
    objects = helm4.objects("x", str(CHART), "--values=-", stdin=json.dumps({"metrics": metrics}))
    certificate = of_kind(objects, "Certificate")["spec"]
    issuers = [each["metadata"]["name"] for each in objects if each["kind"] == "Issuer"]
    assert certificate["issuerRef"]["name"] == (issuer or issuers[0])
    assert len(issuers) == (not issuer)
    for endpoint in endpoints(objects):
        assert endpoint["tlsConfig"]["ca"]["secret"]["name"] == certificate["secretName"]
        assert certificate["dnsNames"] == [endpoint["tlsConfig"]["serverName"]]
    volumes = of_kind(objects, "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert [each for each in volumes if each.get("secret") == {"secretName": certificate["secretName"]}]


def test_without_authorization_monitors_send_no_token_and_the_pods_have_annotations_for_a_scrape(helm4: Helm) -> None:
    values = "metrics.podMonitor.enabled=true,metrics.authorization=false"
    objects = helm4.objects("x", str(CHART), "--set", values)
    (endpoint,) = of_kind(objects, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint == {"port": "http", "interval": "30s", "honorLabels": True}
    assert "Secret" not in {each["kind"] for each in objects}
    metadata = of_kind(objects, "Deployment")["spec"]["template"]["metadata"]
    assert metadata["annotations"] == {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"}
    protected = of_kind(helm4.objects("x", str(CHART)), "Deployment")
    assert "annotations" not in protected["spec"]["template"]["metadata"]
