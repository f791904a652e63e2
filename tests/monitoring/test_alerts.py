"""The rules: promtool accepts them, each alert has unit tests and a runbook."""

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

from support.api_client import ROOT, binary
from support.helm import HELM4
from support.monitoring import program, rules

UNIT_TESTS = Path(__file__).with_name("alerts_test.yaml")
AZURE = ROOT / "manifests" / "aks" / "alerts.json"
SCOPED = Path(__file__).with_name("scoped_alerts_test.yaml")
ALERTS = {rule["alert"]: rule for group in rules()["groups"] for rule in group["rules"]}
HEADINGS = ("## Meaning", "## Diagnosis", "## Mitigation")


def with_computed_annotations(groups: Any) -> Any:
    """The rules with the annotations that Prometheus computes: the unit tests do not repeat the others."""
    for rule in (rule for group in groups["groups"] for rule in group["rules"]):
        rule["annotations"] = {name: text for name, text in rule["annotations"].items() if "{{" in text}
    return groups


def promtool(folder: Path, *arguments: str) -> None:
    """Runs a command that must succeed."""
    done = subprocess.run([program("promtool"), *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_passes(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules()))
    promtool(tmp_path, "check", "rules", "rules.yaml")
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(with_computed_annotations(rules())))
    (tmp_path / UNIT_TESTS.name).write_text(UNIT_TESTS.read_text())
    promtool(tmp_path, "test", "rules", UNIT_TESTS.name)


def rules_of_release(release: str, namespace: str, values: dict[str, Any]) -> Any:
    """The groups of rules of a release of the chart with these values of `metrics.prometheusRule`."""
    metrics = {"podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True, **values}}
    command = [binary(HELM4), "template", release, str(ROOT / "charts" / "horovodjob-operator")]
    command += [f"--namespace={namespace}", "--show-only=templates/monitors.yaml", "--values=-"]
    values_file = json.dumps({"metrics": metrics})
    rendered = subprocess.run(command, input=values_file, capture_output=True, text=True, check=True).stdout
    (rule,) = (each for each in yaml.safe_load_all(rendered) if each["kind"] == "PrometheusRule")
    return rule["spec"]


def test_rules_of_several_releases_are_each_for_one_operator(tmp_path: Path) -> None:
    long = {"namespaces": ["sweeps"], "thresholds": {"queuedSeconds": 7200}}
    west = {"clusterLabels": {"cluster": "west"}, "namespaces": ["team-a", "sweeps"], "namespaceThresholds": [long]}
    west |= {"thresholds": {"queuedSeconds": 1800}}
    releases: dict[str, tuple[str, str, dict[str, Any]]] = {
        "west": ("a", "team-a", west),
        "all": ("horovodjob-operator", "ml", {}),
    }
    for file, release in releases.items():
        (tmp_path / f"{file}.yaml").write_text(yaml.safe_dump(with_computed_annotations(rules_of_release(*release))))
        promtool(tmp_path, "check", "rules", f"{file}.yaml")
    (tmp_path / SCOPED.name).write_text(SCOPED.read_text())
    promtool(tmp_path, "test", "rules", SCOPED.name)


def test_the_rule_groups_of_azure_are_those_of_prometheus() -> None:
    template = json.loads(AZURE.read_text())
    found: dict[str, Any] = {}
    for group in template["resources"]:
        assert group["type"] == "Microsoft.AlertsManagement/prometheusRuleGroups"
        assert len(group["properties"]["rules"]) <= 20, "Azure allows 20 rules in a group"
        found |= {rule["alert"]: rule for rule in group["properties"]["rules"]}
    assert len(template["resources"]) == len(rules()["groups"])
    assert set(found) == set(ALERTS)
    for name, rule in ALERTS.items():
        azure = found[name]
        assert azure["expression"] == rule["expr"].strip()
        assert azure["for"] == f"PT{rule.get('for', '0m').upper()}"
        assert azure["severity"] == {"critical": 0, "warning": 2}[rule["labels"]["severity"]]
        assert (azure["labels"], azure["annotations"]) == (rule["labels"], rule["annotations"])
    # A text that begins with a bracket is an expression of the template.
    texts = [text for rule in found.values() for text in (rule["expression"], *rule["annotations"].values())]
    assert not [text for text in texts if text.startswith("[")]


def test_each_alert_has_a_unit_test_in_which_it_fires() -> None:
    cases = [case for test in yaml.safe_load(UNIT_TESTS.read_text())["tests"] for case in test["alert_rule_test"]]
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == set(ALERTS)


def test_each_alert_has_a_runbook_which_is_in_the_table_of_the_metrics_page() -> None:
    for alert, rule in ALERTS.items():
        page = ROOT / rule["annotations"]["runbook_url"]
        assert page == ROOT / "docs" / "runbooks" / f"{alert}.md"
        lines = page.read_text().splitlines()
        assert lines[0] == f"# {alert}"
        assert [line for line in lines if line.startswith("## ")] == list(HEADINGS), alert
    names = {page.stem for page in (ROOT / "docs" / "runbooks").glob("*.md")}
    assert names == set(ALERTS)
    text = (ROOT / "docs" / "metrics.md").read_text()
    assert [name for name in names if f"(runbooks/{name}.md)" not in text] == []
