"""Prometheus as a process with the rules of this project, and its queries."""

import base64
import json
import os
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from localcluster.control_plane.standalone import free_ports
from localcluster.settings import cache_directory
from support.api_client import BASE, ROOT, Api, wait_for
from support.control_plane.operator_control_plane import OPERATOR_NAMESPACE

COMPONENT = ROOT / "manifests" / "components" / "monitoring"
RULES = COMPONENT / "alerts.yaml"
READER = COMPONENT / "metrics-reader.yaml"
DASHBOARDS = tuple(sorted((COMPONENT / "dashboards").glob("*.json")))
# Values of Grafana's variables; a dashboard in use has a time range of hours, a test one of seconds.
CLUSTER, SCRAPE_JOB = "west", "horovodjob-operator"
VARIABLES = {"$__rate_interval": "1m", "$__range": "5m", "$namespace": ".*", "$name": ".*"}
VARIABLES |= {"$cluster": CLUSTER, "$operator": SCRAPE_JOB}
METRICS_PAGE = (ROOT / "docs" / "metrics.md").read_text()
# Labels of each metric by its name, as the tables of the page have them.
DOCUMENTED_LABELS = {
    name: set(re.findall(r"`(\w+)`", labels))
    for name, labels in re.findall(r"^\| `(horovodjob_\w+)` \| \w+ \| ([^|]*) \|", METRICS_PAGE, re.MULTILINE)
}
METRIC = re.compile(r"\b(?:horovodjob|process)_\w+")


def program(name: str) -> str:
    """The path of a program that is in the cache of the stage `prerequisites`, or installed."""
    found = shutil.which(name, path=f"{cache_directory() / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}")
    assert found, f"{name} is missing: python3 tests/stages prerequisites"
    return found


def rules() -> dict[str, Any]:
    """The groups of alerting rules, as Prometheus reads them."""
    spec: dict[str, Any] = yaml.safe_load(RULES.read_text())["spec"]
    return spec


def rule_expressions() -> list[str]:
    return [rule["expr"] for group in rules()["groups"] for rule in group["rules"]]


def dashboard_queries(**chosen: str) -> dict[str, str]:
    """Each query of each dashboard by `dashboard: panel: legend`, with Grafana's variables filled in."""
    values = VARIABLES | {f"${name}": value for name, value in chosen.items()}
    queries = {}
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", ()):
                query = target["expr"]
                for variable, value in values.items():
                    query = query.replace(variable, value)
                queries[f"{path.stem}: {panel['title']}: {target['legendFormat']}"] = query
    return queries


def reader_manifest(api: Api, folder: Path) -> str:
    """The account that may read the metrics, as an overlay with the component renders it: with its namespace."""
    overlay = {"resources": [os.path.relpath(BASE, folder)], "components": [os.path.relpath(COMPONENT, folder)]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    rendered = api.kubectl("kustomize", str(folder))
    assert rendered.returncode == 0, rendered.stderr
    of_component = {(part["kind"], part["metadata"]["name"]) for part in yaml.safe_load_all(READER.read_text())}
    parts = [
        part for part in yaml.safe_load_all(rendered.stdout) if (part["kind"], part["metadata"]["name"]) in of_component
    ]
    assert len(parts) == len(of_component)
    return yaml.safe_dump_all(parts)


def create_reader(api: Api, manifest: str) -> str:
    """Creates the account that may read the metrics, and returns the token that the PodMonitor sends."""
    applied = api.kubectl("apply", "-f", "-", stdin=manifest)
    assert applied.returncode == 0, applied.stderr
    reference = _endpoint()["authorization"]["credentials"]
    secret = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/secrets/{reference['name']}"
    data = wait_for("the token", lambda: api.get(secret).get("data"))
    return base64.b64decode(data[reference["key"]]).decode()


def _endpoint() -> dict[str, Any]:
    """The endpoint in the PodMonitor."""
    monitor = yaml.safe_load((COMPONENT / "pod-monitor.yaml").read_text())
    endpoint: dict[str, Any] = monitor["spec"]["podMetricsEndpoints"][0]
    return endpoint


class Prometheus:
    """A Prometheus that scrapes one target each second, as the PodMonitor of this project has it scrape pods."""

    def __init__(self, folder: Path, target: str, token: str) -> None:
        self._folder, self._target, self._token = folder, target, token
        self.port = free_ports(1)[0]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Prometheus":
        (self._folder / "token").write_text(self._token)
        (self._folder / "rules.yaml").write_text(yaml.safe_dump(rules()))
        endpoint = _endpoint()
        labels = {"namespace": "horovodjob-system", "pod": "horovodjob-operator-0", "cluster": CLUSTER}
        scrape = {
            "job_name": SCRAPE_JOB,
            "honor_labels": endpoint["honorLabels"],
            "authorization": {"credentials_file": "token"},
            "scheme": endpoint["scheme"],
            "tls_config": {"insecure_skip_verify": endpoint["tlsConfig"]["insecureSkipVerify"]},
            "static_configs": [{"targets": [self._target], "labels": labels}],
        }
        seconds = {"scrape_interval": "1s", "evaluation_interval": "1s", "scrape_timeout": "1s"}
        configuration = {"global": seconds, "rule_files": ["rules.yaml"], "scrape_configs": [scrape]}
        (self._folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
        command = [program("prometheus"), "--config.file=prometheus.yaml", "--storage.tsdb.path=data"]
        command += [f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn"]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig=KILL", "--", *command], cwd=self._folder, stdout=log, stderr=log
            )
        wait_for("Prometheus to scrape", lambda: self._has_ended or self.up)
        assert not self._has_ended, (self._folder / "log").read_text()[-2000:]
        return self

    @property
    def _has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    @property
    def up(self) -> bool:
        """Whether the target answered the last scrape."""
        try:
            return any(float(sample["value"][1]) == 1 for sample in self.query("up"))
        except OSError:
            return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an expression now."""
        data: dict[str, Any] = self._get("query", query=expression)
        result = data["result"]
        return [{"metric": {}, "value": result}] if data["resultType"] == "scalar" else result

    def series(self, expression: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        """The values of an expression between two Unix times, one each `step` seconds."""
        data = self._get("query_range", query=expression, start=start, end=end, step=step)
        found: list[dict[str, Any]] = data["result"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        """The rules, their health and their alerts."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, what: str, **parameters: Any) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=60) as response:
            return json.load(response)["data"]

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
