"""docs/metrics.md and the generated dashboards match the metrics of the operator."""

import subprocess
import sys

from prometheus_client import Metric

from horovodjob_operator.metrics import REGISTRY, JobCollector
from support.monitoring import (
    COMPONENT,
    DOCUMENTED_LABELS,
    METRIC,
    METRICS_PAGE,
    dashboard_queries,
    rule_expressions,
)

SUFFIXES = ("_bucket", "_count", "_sum")
# Names of jobs are unbounded: only series that end with the job may have one.
OF_A_JOB = ("horovodjob_training_", "horovodjob_slowest_rank_", "horovodjob_job_failed_")
BOUNDED = {"namespace", "phase", "reason", "resource", "verb", "code", "result", "cause"}


def families() -> list[Metric]:
    """Every metric of the operator except those of the process."""
    found = [*REGISTRY.collect(), *JobCollector(tuple, tuple, tuple, bool).collect()]
    return [metric for metric in found if metric.name.startswith("horovodjob_")]


def exposed(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def test_the_page_has_each_metric_and_no_other() -> None:
    assert set(DOCUMENTED_LABELS) == {exposed(metric) for metric in families()}


def test_only_gauges_of_running_and_recently_failed_jobs_have_the_name_of_a_job() -> None:
    for name, labels in DOCUMENTED_LABELS.items():
        assert labels - BOUNDED == ({"name"} if name.startswith(OF_A_JOB) else set()), name


def test_rules_dashboards_and_the_page_name_metrics_that_exist() -> None:
    names = {exposed(metric) for metric in families()}
    names |= {name + suffix for name in names for suffix in SUFFIXES}
    texts = (METRICS_PAGE, *rule_expressions(), *dashboard_queries().values())
    named = {name for text in texts for name in METRIC.findall(text) if name.startswith("horovodjob_")}
    assert named - names == set()


def test_the_dashboards_are_generated_from_their_source() -> None:
    command = [sys.executable, str(COMPONENT / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
