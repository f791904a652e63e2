"""The operator's log: one JSON line for each effect, with the job and its namespace."""

from collections.abc import Callable
from datetime import datetime, timedelta

from support.api_client import Api, wait_for
from support.job_driver import Job
from support.operator_process import Operator


def test_each_effect_on_a_job_is_one_line_with_its_name(
    submit_job: Callable[..., Job], operator: Operator, api: Api
) -> None:
    job = submit_job()
    for phase, since in (("Queued", ""), ("Starting", "Queued"), ("Running", "Starting")):
        job.advance_to(phase, since=since)
    count = "horovodjob_operator_reconcile_duration_seconds_count"
    before = operator.metrics()[count]
    api.patch(job.path, {"metadata": {"labels": {"changed": "yes"}}})
    wait_for("a reconciliation without effect", lambda: operator.metrics()[count] > before)
    job.advance_to("Succeeded", since="Running")
    wait_for("the clean-up", lambda: set(job.pods()) == {"launcher"})
    lines = [line for line in operator.new_log_lines() if line.get("namespace") == job.namespace]
    assert [line["message"].partition(":")[0].removeprefix(f"{job.namespace}/train ") for line in lines] == [
        "created the launcher and 2 workers, attempt 1",
        "phase new -> Queued",
        "phase Queued -> Starting",
        "published 2 hosts to the launcher of attempt 1",
        "phase Starting -> Running",
        "phase Running -> Succeeded",
        "deleted the workers",
    ]
    assert all(datetime.fromisoformat(line["time"]).utcoffset() == timedelta() for line in lines)
    fields = {"time", "level", "logger", "message", "namespace", "job"}
    assert {(frozenset(line), line["job"], line["level"]) for line in lines} == {(frozenset(fields), "train", "INFO")}
