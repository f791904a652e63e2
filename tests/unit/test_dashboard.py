"""Rows, pages and curves of the dashboard."""

import asyncio
import copy
import math
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client import CoreV1Api
from urllib3.exceptions import HTTPError

from horovodjob.client.errors import ClientError
from horovodjob_dashboard import token_access
from horovodjob_dashboard.application import application
from horovodjob_dashboard.cluster_rows import WITHOUT_POOL, pod_on_node, pool_rows, queue_rows
from horovodjob_dashboard.comparison_table import Choice, comparison_of
from horovodjob_dashboard.curves import charts_of_a_job, charts_of_jobs, ticks
from horovodjob_dashboard.gpu_usage import usage
from horovodjob_dashboard.job_details import attempts, commands, pod_row
from horovodjob_dashboard.job_rows import COLUMNS, ROWS_OF_A_PAGE, JobRow, Selection, owner, page, row
from horovodjob_dashboard.operator_state import unanswered_change
from horovodjob_dashboard.pages import Pages

Object = dict[str, Any]
NOON = datetime.fromisoformat("2026-11-22T12:00:00Z")


def job(name: str, **status: Any) -> Object:
    metadata = {"namespace": "team", "name": name, "creationTimestamp": "2026-11-22T12:00:00Z"}
    return {"metadata": metadata, "spec": {"worker": {"replicas": 2}}, "status": status}


def trained(*losses: float, **other: list[float]) -> Object:
    epochs = [
        {"epoch": epoch, "metrics": {"loss": loss, **{name: values[epoch - 1] for name, values in other.items()}}}
        for epoch, loss in enumerate(losses, start=1)
    ]
    return job("train", training={"progress": 1, "history": epochs})


def test_a_page_has_at_most_a_hundred_jobs_and_the_last_page_the_rest() -> None:
    rows = [row(job(f"job-{number:04}")) for number in range(2 * ROWS_OF_A_PAGE + 1)]
    last = page(rows, Selection(sort="name", page=9), NOON)
    assert (last.total, last.number, last.pages) == (201, 3, 3)
    assert [each.name for each in last.rows] == ["job-0200"]


# As jobs are that an operator of another release, or a person with the right to write a status, has changed.
WHOLE = {
    "metadata": {
        "namespace": "team",
        "name": "odd",
        "uid": "u1",
        "creationTimestamp": "2026-11-22T12:00:00Z",
        "labels": {"horovodjob.dev/owner": "ada", "horovodjob.dev/experiment": "digits"},
        "annotations": {"horovodjob.dev/batchai-name": "odd one"},
    },
    "spec": {"worker": {"replicas": 2, "gpus": 4}, "command": ["train"]},
    "status": {
        "phase": "Running",
        "startTime": "2026-11-22T12:00:05Z",
        "activeSeconds": 7,
        "queue": {"name": "gpus", "position": 3},
        "conditions": [{"type": "Running", "status": "True", "reason": "RanksRunning", "message": "it runs"}],
        "training": {"progress": 0.5, "eta": "2026-11-22T13:00:00Z"},
    },
}
PATHS = [
    ("status", *path)
    for path in (
        (),
        ("phase",),
        ("startTime",),
        ("activeSeconds",),
        ("queue",),
        ("queue", "name"),
        ("queue", "position"),
        ("conditions",),
        ("conditions", 0),
        ("conditions", 0, "message"),
        ("training",),
        ("training", "progress"),
        ("training", "eta"),
    )
] + [("metadata", "annotations"), ("metadata", "labels"), ("spec", "worker"), ("spec", "worker", "gpus")]
texts = st.text() | st.sampled_from(["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "x" * 3000, "<script>", "NaN"])
things = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


def changed(job: Object, path: tuple[Any, ...], thing: Any) -> Object:
    """The job with another value at this path."""
    found = copy.deepcopy(job)
    place: Any = found
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = thing
    return found


def list_of(*rows: JobRow, sort: str = "name") -> str:
    """The page with the rows."""
    selection = Selection(sort=sort)
    feed = SimpleNamespace(error="", is_synced=True, rows={each.name: each for each in rows}, namespace="")
    listed = page(rows, selection, NOON)
    return Pages().text(
        "job_rows.html", feed=feed, selection=selection, columns=COLUMNS, page=listed, operator_problem=""
    )


@pytest.fixture(scope="module", params=["Asia/Tokyo", "America/Los_Angeles"])
def time_zone(request: pytest.FixtureRequest) -> Iterator[None]:
    """A time zone of the process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("time_zone")
@given(st.sampled_from(PATHS), things, st.sampled_from([*COLUMNS]))
def test_an_odd_job_costs_at_most_its_own_row_in_lists_gpu_hours_and_comparisons(
    path: tuple[Any, ...], thing: Any, sort: str
) -> None:
    shown = list_of(row(job("good")), row(changed(WHOLE, path, thing)), sort=sort)
    rows = re.findall(r'<tr id="team/(.+?)">.*?</tr>', shown, re.DOTALL)
    assert sorted(rows) == ["good", "odd"]
    assert len(shown) < 10_000, "no text fills the page"
    assert shown.count("<td") + shown.count('<th scope="row"') == 2 * 11

    good = changed(WHOLE, ("metadata", "name"), "good")
    good["status"]["runningTime"] = "2026-11-22T11:00:00Z"
    used = usage([row(good), row(changed(WHOLE, path, thing))], NOON - timedelta(days=1), NOON)
    assert used.gpu_hours >= 8 - 0.01
    assert set(used.groups) == {"owner", "namespace", "experiment"}

    jobs = {"team/odd": changed(WHOLE, path, thing), "team/good": trained(0.5)}
    found = comparison_of(jobs, Choice((), metric="loss"))
    assert sorted([*(each.name for each in found["rows"]), *found["odd"]]) == ["team/good", "team/odd"]
    compared = next(each for each in found["rows"] if each.name == "team/good")
    assert compared.values["lowest" if found["goal"] is None else "best"] is not None


@pytest.mark.parametrize(("quantity", "gpus"), [("1k", 1000), ("1Ki", 1024), ("0", 0), (8, 8)])
def test_a_pod_with_any_quantity_of_gpus_has_a_row_and_counts_on_its_node(quantity: str | int, gpus: int) -> None:
    limits = {"nvidia.com/gpu": quantity}
    pod = {
        "metadata": {"name": "odd", "namespace": "team", "labels": {"horovodjob.dev/role": "launcher"}},
        "spec": {"nodeName": "gpu-1", "containers": [{"name": "launcher", "resources": {"limits": limits}}]},
        "status": {"phase": "Running"},
    }
    assert pod_row(pod).gpus == str(gpus or "")
    found = pod_on_node(pod)
    assert found
    assert found.gpus == gpus
    node = {"metadata": {"name": "gpu-1"}, "spec": {}, "status": {"capacity": limits, "allocatable": limits}}
    (pool,) = pool_rows([node], [found], NOON)
    assert (pool.gpus, pool.used) == (gpus, gpus)


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("queue", ["first", "second", "held", "none"]),
        ("-duration", ["held", "none", "first", "second"]),
        ("-workers", ["first", "held", "none", "second"]),
        ("owner", ["second", "first", "held", "none"]),
        ("phase", ["first", "second", "held", "none"]),
    ],
)
def test_jobs_are_in_the_order_of_a_column_and_those_with_equal_values_in_that_of_their_names(
    sort: str, expected: list[str]
) -> None:
    jobs = [
        job("none", phase="Running", startTime="2026-11-22T11:30:00Z"),
        job("second", phase="Queued", queue={"name": "gpus", "position": 2}),
        job("held", phase="Running", startTime="2026-11-22T11:00:00Z", queue={"name": "gpus"}),
        job("first", phase="Queued", queue={"name": "gpus", "position": 1}),
    ]
    jobs[1]["metadata"]["labels"] = {"horovodjob.dev/owner": "ada"}
    assert [each.name for each in page(map(row, jobs), Selection(sort=sort), NOON).rows] == expected


def test_the_address_of_a_column_keeps_the_filters_begins_with_the_largest_and_then_reverses() -> None:
    chosen = Selection(text="a b", owner="Helm release x", page=3)
    assert chosen.sorted_by("gpus") == "?text=a+b&owner=Helm+release+x&sort=-gpus"
    assert replace(chosen, sort="-gpus").sorted_by("gpus") == "?text=a+b&owner=Helm+release+x&sort=gpus"
    assert replace(chosen, sort="gpus").sorted_by("name") == "?text=a+b&owner=Helm+release+x&sort=name"
    assert (chosen.direction("created"), chosen.direction("name")) == ("descending", "none")


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, ""),
        ({"labels": {"horovodjob.dev/owner": "ada"}, "annotations": {"meta.helm.sh/release-name": "x"}}, "ada"),
        ({"annotations": {"meta.helm.sh/release-name": "digits"}}, "Helm release digits"),
        (
            {"annotations": {"argocd.argoproj.io/tracking-id": "team:horovodjob.dev/HorovodJob:ns/job"}},
            "Argo CD application team",
        ),
        ({"labels": {"kustomize.toolkit.fluxcd.io/name": "jobs"}}, "Flux Kustomization jobs"),
        ({"ownerReferences": [{"kind": "Study", "name": "s", "controller": True}]}, "Study s"),
        ({"ownerReferences": [{"kind": "ConfigMap", "name": "s"}]}, ""),
    ],
)
def test_the_owner_is_the_label_or_what_deployed_the_job(metadata: Object, expected: str) -> None:
    assert owner(metadata) == expected


@pytest.mark.parametrize(
    "query", [{"page": "-1"}, {"page": "x"}, {"page": "9" * 30}, {"sort": "words"}, {"sort": "--name"}]
)
def test_an_invalid_address_shows_the_first_page_with_the_newest_jobs(query: dict[str, str]) -> None:
    assert Selection.from_query(query) == Selection()


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 1, [0, 0.5, 1]), (1703, 1760, [1700, 1720, 1740, 1760]), (-3, 7, [-5, 0, 5, 10]), (2, 2, [2, 2.5])],
)
def test_ticks_are_round_numbers_around_the_values(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == expected


@pytest.mark.parametrize(
    "losses",
    [(0.0, 0.0), (5e-324, 0.0), (1.7e308, -1.7e308), (1e-300, 2e-300), (0.1 + 0.2, 0.3), (1e15, 1e15 + 1), (7.0,)],
)
def test_each_point_of_any_curve_is_inside_the_picture(losses: tuple[float, ...]) -> None:
    (chart,) = charts_of_a_job(trained(*losses))
    points = [(point.x, point.y) for line in chart.lines for point in line.points]
    assert len(points) == len(losses)
    assert all(math.isfinite(x) and math.isfinite(y) for x, y in points)
    assert all(chart.left <= x <= chart.right and 10 <= y <= 176 for x, y in points)


def test_training_and_validation_share_a_chart_and_the_learning_rate_has_its_own() -> None:
    made = trained(2, 1, val_loss=[3, 2], val_recall=[0.5, 0.75])
    made["status"]["training"]["history"][0]["learningRate"] = 0.1
    found = {chart.title: [line.name for line in chart.lines] for chart in charts_of_a_job(made)}
    assert found == {"loss": ["loss", "val_loss"], "recall": ["val_recall"], "learning rate": ["learning rate"]}


def test_jobs_of_a_comparison_have_the_same_color_in_each_chart() -> None:
    jobs = {"one": trained(2, 1), "two": trained(3, 2, recall=[0.5, 0.75])}
    colors = {(chart.title, line.name): line.color for chart in charts_of_jobs(jobs) for line in chart.lines}
    assert colors == {("loss", "one"): 0, ("loss", "two"): 1, ("recall", "two"): 1}


def at(minute: int, second: int = 0) -> str:
    return f"2026-11-22T12:{minute:02}:{second:02}Z"


def event(reason: str, time: str, message: str = "") -> Object:
    return {"metadata": {}, "reason": reason, "message": message, "lastTimestamp": time, "type": "Normal"}


def restarted(**status: Any) -> Object:
    """A job that failed twice and runs its third attempt."""
    errors = [
        {"time": at(5), "attempt": 1, "reason": "RankFailed", "exitCode": 1, "pod": "train-launcher", "node": "gpu-1"},
        {"time": at(9), "attempt": 2, "reason": "NodeLost", "pod": "train-worker-0", "node": "gpu-2"},
    ]
    times = {"startTime": at(1), "runningTime": at(12)}
    return job("train", phase="Running", attempt=3, errors=errors, **times, **status)


def test_attempts_have_their_restarts_with_reason_and_place_also_without_events() -> None:
    found = [
        (attempt.number, [(moment.title, moment.where) for moment in attempt.moments])
        for attempt in attempts(restarted(), [])
    ]
    assert found == [
        (1, [("Created", ""), ("Starting", ""), ("RankFailed, exit code 1", "train-launcher, gpu-1")]),
        (2, [("NodeLost", "train-worker-0, gpu-2")]),
        (3, [("Running", "")]),
    ]


def test_events_are_in_the_attempt_that_they_are_about_and_replace_what_the_status_says() -> None:
    events = [
        event("Created", at(1), "creating the launcher and 2 workers"),
        event("Started", at(3)),
        event("Restarting", at(5, 1), "attempt 2 starts in 10s"),
        event("Started", at(7)),
        event("Preempted", at(9), "attempt 3 starts"),
        event("Started", at(12)),
        event("SomethingElse", at(12)),
    ]
    found = [(each.number, [moment.title for moment in each.moments]) for each in attempts(restarted(), events)]
    assert found == [
        (1, ["Created", "Starting", "Running", "RankFailed, exit code 1", "Restarting"]),
        (2, ["Running", "NodeLost", "Preempted"]),
        (3, ["Running"]),
    ]


def test_the_end_of_a_job_has_its_reason() -> None:
    failed = {"type": "Failed", "status": "True", "message": "2 of 2 attempts failed", "lastTransitionTime": at(9)}
    (attempt,) = attempts(job("train", phase="Failed", completionTime=at(9), conditions=[failed]), [])
    end = attempt.moments[-1]
    assert (end.title, end.text, end.is_error) == ("Failed", "2 of 2 attempts failed", True)


def test_the_commands_are_those_that_the_job_allows_now() -> None:
    finished, suspended = job("train", phase="Failed"), job("train", phase="Suspended")
    suspended["spec"] |= {"runPolicy": {"suspend": True}, "logs": {"pathPrefix": "/data"}}
    assert not [line for line in commands(finished) if "terminate" in line or "suspend" in line or "file" in line]
    lines = [line.split(" -")[0] for line in commands(suspended)]
    assert {"hvj job resume", "hvj job terminate", "hvj job file stream"} < set(lines)


def node(name: str, gpus: int = 0, pool: str = "", **spec: Any) -> Object:
    labels = {"agentpool": pool} if pool else {}
    status = {"allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


def pod(node_name: str, gpus: int, job_name: str = "", phase: str = "Running") -> Object:
    labels = {"horovodjob.dev/job": job_name, "horovodjob.dev/role": "worker"} if job_name else {}
    container = {"name": "worker", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    spec = {"containers": [container]} | ({"nodeName": node_name} if node_name else {})
    return {"metadata": {"namespace": "team", "labels": labels}, "spec": spec, "status": {"phase": phase}}


def test_gpus_are_used_by_all_pods_on_a_node_and_free_on_nodes_that_take_pods() -> None:
    nodes = [node("a", 4, "gpu"), node("b", 4, "gpu", unschedulable=True), node("c")]
    pods = [pod("a", 1, "train"), pod("a", 2), pod("a", 4, phase="Succeeded"), pod("", 4, "waits")]
    gpu, other = pool_rows(nodes, [found for each in pods if (found := pod_on_node(each))], NOON)
    assert (gpu.name, gpu.gpus, gpu.used, gpu.free) == ("gpu", 8, 3, 1)
    assert [(each.name, each.state, each.jobs) for each in gpu.nodes] == [
        ("a", "running", ["team/train"]),
        ("b", "leaving", []),
    ]
    assert (other.name, [each.name for each in other.nodes]) == (WITHOUT_POOL, ["c"])


def test_queues_have_their_jobs_in_order_and_jobs_without_a_queue_are_last() -> None:
    jobs = [
        job("after", phase="Queued", queue={"name": "gpus", "position": 3}),
        job("next", phase="Queued", queue={"name": "gpus", "position": 1}),
        job("runs", phase="Running", queue={"name": "gpus"}),
        job("ended", phase="Succeeded", queue={"name": "gpus"}),
        job("held", phase="Suspended", queue={"name": "gpus"}),
        job("unschedulable", phase="Queued"),
        job("free", phase="Running"),
    ]
    inactive = {"type": "Active", "status": "False", "message": "ClusterQueue team does not exist"}
    empty = {"metadata": {"namespace": "team", "name": "empty"}, "status": {"conditions": [inactive]}}
    found = queue_rows(map(row, jobs), [empty])
    assert [
        (each.name, [job.name for job in each.waiting], [job.name for job in each.active], each.problem)
        for each in found
    ] == [
        ("empty", [], [], "ClusterQueue team does not exist"),
        ("gpus", ["next", "after"], ["runs"], ""),
        ("", ["unschedulable"], [], ""),
    ]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, True),
        ({"observed": 2}, False),
        ({"minutes": 0.5}, False),
        ({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}, False),
        ({"operator_minutes": 0}, True),
    ],
)
def test_an_operator_is_away_if_a_change_of_a_job_has_no_answer_for_a_minute(changed: Object, expected: bool) -> None:
    values: Object = {"observed": 1, "minutes": 2, "operator_minutes": 9, "spec": {}} | changed
    managers = [
        {"manager": "kubectl", "time": (NOON - timedelta(minutes=values["minutes"])).isoformat()},
        {
            "manager": "operator",
            "subresource": "status",
            "time": (NOON - timedelta(minutes=values["operator_minutes"])).isoformat(),
        },
    ]
    suspended = job("train", observedGeneration=values["observed"])
    suspended["metadata"] |= {"generation": 2, "creationTimestamp": "2026-11-22T10:00:00Z", "managedFields": managers}
    suspended["spec"] = values["spec"]
    expected_sentence = "no operator has answered the last change of team/train" if expected else ""
    assert unanswered_change([suspended], NOON) == expected_sentence


def test_the_dashboard_in_the_cluster_needs_no_package_of_the_command_line() -> None:
    absent = "typer", "rich", "click", "pathspec", "plotille", "azure.mgmt"
    program = f"import sys; sys.modules.update(dict.fromkeys({absent})); import horovodjob_dashboard.__main__"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("error", "status", "is_tried_again"), [(KeyError("reason"), 500, False), (ClientError("no route"), 502, True)]
)
def test_a_page_that_cannot_be_shown_says_why_and_tries_again_if_that_may_pass(
    error: Exception, status: int, is_tried_again: bool
) -> None:
    async def fail(_: web.Request) -> web.Response:
        raise error

    async def answer() -> tuple[int, str]:
        served = application(SimpleNamespace(), Pages(), public=[web.get("/odd", fail)])
        async with TestClient(TestServer(served)) as browser, browser.get("/odd") as response:
            return response.status, await response.text()

    found, text = asyncio.run(answer())
    assert (found, 'id="again"' in text) == (status, is_tried_again)
    assert ("KeyError: its log has the place" in text, "no route" in text) == (not is_tried_again, is_tried_again)


def test_a_request_to_an_api_server_that_does_not_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_access, "REQUEST_SECONDS", (5, 0.1))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = token_access.ApiServer(f"http://127.0.0.1:{silent.getsockname()[1]}", "").client("token")
        with pytest.raises(HTTPError, match="timed out"):
            CoreV1Api(client).list_node()
