"""A real Prometheus scrapes the operator: metrics, rules, dashboards, and the right to read the metrics."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.api_client import Api, wait_for
from support.control_plane.operator_control_plane import OPERATOR_NAMESPACE, make_namespace
from support.job_driver import Job, submit
from support.monitoring import (
    CLUSTER,
    DOCUMENTED_LABELS,
    METRIC,
    Prometheus,
    create_reader,
    dashboard_queries,
    reader_manifest,
    rule_expressions,
)
from support.operator_process import Operator
from support.progress_client import post_until_reviewed, token_of

NAMESPACE = "monitored"
# Queries without samples in a healthy cluster.
MAY_BE_EMPTY = ("operator: Failed requests",)


@dataclass(frozen=True)
class Monitored:
    """An operator, a Prometheus that scrapes it, and jobs in several phases."""

    operator: Operator
    prometheus: Prometheus
    jobs: dict[str, Job]
    token: str


@pytest.fixture(scope="module")
def monitored(
    operator_process: Operator,
    operator_access: Path,
    api: Api,
    reader_token: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Monitored]:
    """Starts Prometheus before the jobs, so that it scrapes each from its beginning."""
    operator_process.kill()
    log = operator_access.with_name("monitored")
    operator = Operator(
        operator_access,
        log,
        lease_namespace=OPERATOR_NAMESPACE,
        metrics_authorization="1",
        watch_timeout_seconds="2",
    ).start()
    make_namespace(api, NAMESPACE)
    prometheus = Prometheus(
        tmp_path_factory.mktemp("prometheus"), f"127.0.0.1:{operator.tls_port}", reader_token
    ).start()
    try:
        yield Monitored(operator, prometheus, jobs(api, operator), reader_token)
    finally:
        prometheus.kill()
        operator.kill()
        api.delete(f"/api/v1/namespaces/{NAMESPACE}")


def jobs(api: Api, operator: Operator) -> dict[str, Job]:
    """One job in each phase that a dashboard shows; the one that runs reports its progress."""
    made = {name: submit(api, NAMESPACE, name) for name in ("queued", "running", "succeeded", "restarting")}
    made["failed"] = submit(api, NAMESPACE, "failed", runPolicy={"backoffLimit": 0})
    made["starting"] = submit(api, NAMESPACE, "starting").advance_to("Starting")
    template = {"template": {"spec": {"containers": "x"}}}
    made["stalled"] = submit(api, NAMESPACE, "stalled", worker={"replicas": 1, "gpus": 0, **template})
    made["stalled"].wait_for_condition("Stalled", reason="InvalidSpec")
    for name in ("running", "succeeded", "restarting"):
        made[name].advance_to(name.capitalize())
    made["failed"].advance_to("Running").end("launcher", 1)
    made["failed"].wait("Failed")
    assert post_until_reviewed(operator, token_of(made["running"])) == 204
    wait_for("the report", lambda: made["running"].status.get("training"))
    slowest = {"rank": 1, "pod": "running-worker-1", "ratio": 1.5, "section": "compute"}
    usage = {"seconds": {"steps": 80.0, "input": 20.0}, "steps": 120, "firstStep": 0, "slowestRank": slowest}
    stall = {"since": "2026-11-26T14:32:10Z", "others": "all 2 ranks wait in the exchange"}
    assert post_until_reviewed(operator, token_of(made["running"]), stall=stall, usage=usage) == 204
    made["running"].wait_for_condition("Progressing", status="False", reason="TrainingStalled")
    training = made["running"].status["training"]
    assert training["slowestRank"]["node"] == "node-1"
    assert {"steps", "input"} <= training["goodput"]["seconds"].keys()  # at most the time of the job
    wait_for("the event", lambda: made["running"].events()["SlowRank"] == 1)
    return made


@pytest.fixture(scope="module")
def reader_token(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    manifest = reader_manifest(api, tmp_path_factory.mktemp("reader"))
    yield create_reader(api, manifest)
    # With the service account, Kubernetes deletes the Secret of its token, often before kubectl does.
    deleted = api.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=manifest)
    assert deleted.returncode == 0, deleted.stderr


def service_account_token(api: Api, name: str) -> str:
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    api.create(accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    return str(api.create(f"{accounts}/{name}/token", request)["status"]["token"])


def test_each_metric_of_rules_and_dashboards_is_in_prometheus(monitored: Monitored) -> None:
    named = {name for text in (*rule_expressions(), *dashboard_queries().values()) for name in METRIC.findall(text)}
    assert len(named) > 20

    def missing() -> set[str]:
        samples = monitored.prometheus.query('count by (__name__) ({__name__=~"(horovodjob|process)_.+"})')
        return named - {sample["metric"]["__name__"] for sample in samples}

    wait_for(f"all of {sorted(named)}", lambda: not missing())


def test_each_query_of_a_dashboard_returns_samples_of_its_cluster_and_operator_alone(monitored: Monitored) -> None:
    for panel, query in dashboard_queries().items():
        if panel.startswith(MAY_BE_EMPTY):
            monitored.prometheus.query(query)  # raises if the query is invalid
        else:
            wait_for(f"samples of {panel}: {query}", lambda: monitored.prometheus.query(query))  # noqa: B023
    for other in ({"cluster": "east"}, {"operator": "other"}, {"namespace": "none"}):
        found = {panel for panel, query in dashboard_queries(**other).items() if monitored.prometheus.query(query)}
        assert found == set(), other


def test_prometheus_has_the_values_of_the_jobs(monitored: Monitored) -> None:
    def value(query: str) -> float:
        samples = monitored.prometheus.query(query)
        return float(samples[0]["value"][1]) if len(samples) == 1 else -1

    def is_there(query: str, expected: float) -> None:
        wait_for(f"{query} to be {expected}, not {value(query)}", lambda: value(query) == expected)

    for phase in ("Starting", "Running", "Succeeded", "Restarting", "Failed"):
        is_there(f'horovodjob_jobs{{namespace="{NAMESPACE}", phase="{phase}"}}', 1)
    is_there(f'horovodjob_jobs{{namespace="{NAMESPACE}", phase="Queued"}}', 2)
    is_there(f'horovodjob_jobs_stalled{{namespace="{NAMESPACE}", reason="InvalidSpec"}}', 1)
    of_job = f'{{namespace="{NAMESPACE}", name="running"}}'
    is_there(f"horovodjob_training_progress_ratio{of_job}", 0.13)
    is_there(f"horovodjob_training_samples_per_second{of_job}", 5120)
    is_there(f"horovodjob_training_loss{of_job}", 1.1)
    is_there(f"horovodjob_slowest_rank_ratio{of_job}", 1.5)
    is_there(f"horovodjob_training_eta_timestamp_seconds{of_job}", 1896091200)
    is_there('horovodjob_operator_progress_reports_total{result="accepted"}', 2)


def test_only_the_alerts_for_a_failed_job_and_a_training_that_stalls_fire(monitored: Monitored) -> None:
    def firing() -> list[dict[str, str]]:
        alerts = (alert for rule in monitored.prometheus.rules() for alert in rule["alerts"])
        return [alert["labels"] for alert in alerts if alert["state"] == "firing"]

    wait_for("two alerts", lambda: len(firing()) == 2)
    common = {"severity": "warning", "namespace": NAMESPACE, "cluster": CLUSTER}
    failed = {"alertname": "HorovodJobFailed", "reason": "BackoffLimitExceeded", "name": "failed"}
    stalled = {"alertname": "HorovodJobTrainingStalled", "name": "running"}
    assert sorted(firing(), key=lambda labels: labels["alertname"]) == [common | failed, common | stalled]
    assert {rule["health"] for rule in monitored.prometheus.rules()} == {"ok"}


def series(prometheus: Prometheus) -> list[dict[str, str]]:
    """The labels of all series of the operator; Prometheus has none of them after a scrape that failed."""
    samples = wait_for("a scrape", lambda: prometheus.query('{__name__=~"horovodjob_.+"}'))
    return [sample["metric"] for sample in samples]


def test_each_series_has_the_labels_of_the_metrics_page(monitored: Monitored) -> None:
    for metric in series(monitored.prometheus):
        name = re.sub("_(bucket|sum|count)$", "", metric["__name__"])
        found = {label for label, value in metric.items() if value != OPERATOR_NAMESPACE}
        expected = DOCUMENTED_LABELS[name] | {"__name__", "instance", "job", "pod", "cluster"}
        assert found - {"le"} == expected, name


def test_the_age_of_an_idle_watch_stays_small(monitored: Monitored) -> None:
    # Each watch request ends after two seconds. A job that changes would cause fewer events than this.
    for resource in ("pods", "horovodjobs"):
        signs = f'resets(horovodjob_operator_watch_age_seconds{{resource="{resource}"}}[20s])'
        wait_for("watch events", lambda: float(monitored.prometheus.query(signs)[0]["value"][1]) >= 6)  # noqa: B023


def test_metrics_require_a_token_with_the_right_to_get_them(monitored: Monitored, api: Api) -> None:
    operator = monitored.operator
    assert operator.get("/metrics", monitored.token)[0] == 200
    status, sentence = operator.get("/metrics")
    assert (status, "requires a bearer token" in sentence) == (401, True)
    status, sentence = operator.get("/metrics", f"{monitored.token[:-8]}AAAAAAAA")
    assert (status, "does not accept the token" in sentence) == (401, True)
    status, sentence = operator.get("/metrics", service_account_token(api, "nobody"))
    assert (status, sentence.split()[0]) == (403, f"system:serviceaccount:{NAMESPACE}:nobody")
    assert "horovodjob-metrics-reader" in sentence
    assert (operator.get("/healthz")[0], operator.get("/readyz")[0]) == (200, 200)

    # A token is reviewed once for many scrapes.
    asked = 'horovodjob_operator_api_requests_total{resource="subjectaccessreviews", code="201"}'
    scrapes = "count_over_time(horovodjob_operator_leader[10m])"
    wait_for("twenty scrapes", lambda: float(monitored.prometheus.query(scrapes)[0]["value"][1]) >= 20)
    reviews = float(monitored.prometheus.query(asked)[0]["value"][1])
    assert reviews < float(monitored.prometheus.query(scrapes)[0]["value"][1]) / 5
