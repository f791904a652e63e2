"""Grafana dashboards from one typed source, and the chart's copies of dashboards and rules.

python manifests/components/monitoring/generate.py           writes the files
python manifests/components/monitoring/generate.py --check   exit code 1 and their names if they are out of date
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CHART = ROOT / "charts" / "horovodjob-operator" / "files"
COLUMNS = 24
ROW_HEIGHT = 7
Unit = Literal["short", "s", "percentunit", "reqps", "ops", "bytes", "dateTimeFromNow"]
Kind = Literal["timeseries", "stat", "bargauge"]


@dataclass(frozen=True)
class Panel:
    """One panel: its queries by legend, in which `{{label}}` is a label of the series."""

    title: str
    queries: dict[str, str]
    unit: Unit = "short"
    kind: Kind = "timeseries"
    width: int = 8
    description: str = ""


@dataclass(frozen=True)
class Dashboard:
    """One dashboard; its variables are names of labels of a metric."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    variables: tuple[tuple[str, str], ...] = ()
    """Name of a variable, and the query of its values."""


def _quantiles(histogram: str, window: str = "$__rate_interval") -> dict[str, str]:
    def quantile(share: float) -> str:
        return f"histogram_quantile({share}, sum by (le) (rate({histogram}_bucket[{window}])))"

    return {"median": quantile(0.5), "99th percentile": quantile(0.99)}


def _rate(metric: str, by: str = "") -> str:
    return f"sum{f' by ({by})' if by else ''} (rate({metric}[$__rate_interval]))"


API_REQUESTS = "horovodjob_operator_api_requests_total"
FAILED_REQUESTS = f'{API_REQUESTS}{{code=~"401|403|429|5..|error"}}'
# Every process has the metrics `process_*`, whatever its target is called.
OF_OPERATOR = "and on (job, instance) horovodjob_operator_leader"
OPERATOR = Dashboard(
    "operator",
    "HorovodJob operator",
    (
        Panel("Leaders", {"leaders": "sum(horovodjob_operator_leader)"}, kind="stat", width=4),
        Panel("Pods", {"pods": "count(horovodjob_operator_leader)"}, kind="stat", width=4),
        Panel(
            "Age of the watches",
            {"{{resource}}": "max by (resource) (horovodjob_operator_watch_age_seconds)"},
            unit="s",
            description="Time since the last event or bookmark; the API server sends a bookmark each minute.",
        ),
        Panel(
            "Work queue",
            {"jobs that wait": "sum(horovodjob_operator_workqueue_depth)"},
            description="Jobs with an event, or a retry, that wait for their reconciliation.",
        ),
        Panel("Wait in the work queue", _quantiles("horovodjob_operator_workqueue_queue_duration_seconds"), unit="s"),
        Panel("Reconciliation", _quantiles("horovodjob_operator_reconcile_duration_seconds"), unit="s"),
        Panel(
            "Reconciliations",
            {
                "all": _rate("horovodjob_operator_reconcile_duration_seconds_count"),
                "failed": _rate("horovodjob_operator_reconcile_errors_total"),
            },
            unit="ops",
        ),
        Panel("Requests to the API server", {"{{verb}} {{resource}}": _rate(API_REQUESTS, "verb, resource")}, "reqps"),
        Panel(
            "Failed requests",
            {"{{verb}} {{resource}} {{code}}": _rate(FAILED_REQUESTS, "verb, resource, code")},
            "reqps",
        ),
        Panel(
            "Reports of progress",
            {"{{result}}": _rate("horovodjob_operator_progress_reports_total", "result")},
            unit="reqps",
        ),
        Panel(
            "Processors",
            {"{{pod}}": f"sum by (pod) (rate(process_cpu_seconds_total[$__rate_interval]) {OF_OPERATOR})"},
            width=12,
        ),
        Panel(
            "Memory",
            {"{{pod}}": f"sum by (pod) (process_resident_memory_bytes {OF_OPERATOR})"},
            unit="bytes",
            width=12,
        ),
    ),
)
OLDEST_QUEUED = "horovodjob_oldest_queued_timestamp_seconds"
OF_NAMESPACE = '{namespace=~"$namespace"}'
OF_JOB = '{namespace=~"$namespace", name=~"$name"}'


def _training(metric: str, before: str = "", after: str = "") -> dict[str, str]:
    return {"{{namespace}}/{{name}}": f"{before}max by (namespace, name) (horovodjob_training_{metric}{OF_JOB}){after}"}


JOBS = Dashboard(
    "jobs",
    "HorovodJobs",
    (
        Panel("Jobs", {"{{phase}}": f"sum by (phase) (horovodjob_jobs{OF_NAMESPACE})"}),
        Panel(
            "Longest wait in the queue",
            {"{{namespace}}": f"time() - min by (namespace) ({OLDEST_QUEUED}{OF_NAMESPACE})"},
            unit="s",
        ),
        Panel(
            "Stalled jobs",
            {"{{namespace}}: {{reason}}": f"sum by (namespace, reason) (horovodjob_jobs_stalled{OF_NAMESPACE})"},
            description="They cannot continue without a user action.",
        ),
        Panel("Progress", _training("progress_ratio"), unit="percentunit", kind="bargauge"),
        Panel("Throughput (samples/s)", _training("samples_per_second")),
        Panel("Loss", _training("loss")),
        Panel(
            "Time to the end",
            _training("eta_timestamp_seconds", after=" - time()"),
            unit="s",
            description="What the training program estimates.",
        ),
        Panel(
            "Ends in an hour",
            {
                "succeeded": "sum(increase(horovodjob_jobs_succeeded_total[1h]))",
                "failed: {{reason}}": "sum by (reason) (increase(horovodjob_jobs_failed_total[1h])) > 0",
            },
            description="Of all namespaces.",
        ),
        Panel(
            "Restarts in an hour",
            {"{{reason}}": "sum by (reason) (increase(horovodjob_restarts_total[1h]))"},
            description="Of all namespaces.",
        ),
        Panel("Created to placed", _quantiles("horovodjob_queue_duration_seconds", "1h"), unit="s"),
        Panel("Created to running", _quantiles("horovodjob_start_duration_seconds", "1h"), unit="s"),
        Panel("Running to the end", _quantiles("horovodjob_run_duration_seconds", "1h"), unit="s"),
    ),
    (
        ("namespace", "label_values(horovodjob_jobs, namespace)"),
        ("name", 'label_values(horovodjob_training_progress_ratio{namespace=~"$namespace"}, name)'),
    ),
)
DASHBOARDS = (OPERATOR, JOBS)
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def grafana_json(dashboard: Dashboard) -> str:
    """The dashboard as Grafana imports it."""
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
    body = {
        "uid": f"horovodjob-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["horovodjob"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [source, *(_variable(name, query) for name, query in dashboard.variables)]},
        "panels": list(_panels(dashboard.panels)),
    }
    return json.dumps(body, indent=2) + "\n"


def _variable(name: str, query: str) -> dict[str, Any]:
    choice = {"multi": True, "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}
    return {"name": name, "type": "query", "datasource": SOURCE, "query": query, "refresh": 2, **choice}


def _panels(panels: tuple[Panel, ...]) -> Iterator[dict[str, Any]]:
    """Panels in rows from left to right."""
    x = y = 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > COLUMNS:
            x, y = 0, y + ROW_HEIGHT
        instant = panel.kind != "timeseries"
        yield {
            "id": number,
            "type": panel.kind,
            "title": panel.title,
            "description": panel.description,
            "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": panel.width, "h": ROW_HEIGHT},
            "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
            "targets": [
                {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend, "instant": instant}
                for index, (legend, query) in enumerate(panel.queries.items())
            ],
        }
        x += panel.width


def files() -> dict[Path, str]:
    """Content of all generated files."""
    content = {f"dashboards/{dashboard.name}.json": grafana_json(dashboard) for dashboard in DASHBOARDS}
    copied = content | {"alerts.yaml": (HERE / "alerts.yaml").read_text()}
    return {HERE / name: text for name, text in content.items()} | {CHART / name: text for name, text in copied.items()}


def main(arguments: list[str]) -> int:
    """Exit code: with --check 1 where a file is out of date."""
    stale = {path: text for path, text in files().items() if not path.exists() or path.read_text() != text}
    if "--check" in arguments:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date: run python {Path(__file__).resolve().relative_to(ROOT)}")
        return 1 if stale else 0
    for path, text in stale.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
