"""The ConfigMap with the Grafana dashboards of the operator's chart."""

import json

from support.api_client import ROOT
from support.helm import Helm

CHART = ROOT / "charts" / "horovodjob-operator"


def test_the_dashboards_have_the_label_that_distinguishes_clusters(helm4: Helm) -> None:
    labels = '--set-json=metrics.prometheusRule.clusterLabels={"cluster":null,"k8s":""}'
    objects = helm4.objects("operator", str(CHART), labels, "--set=metrics.dashboards.enabled=true")
    (data,) = (each["data"] for each in objects if each["kind"] == "ConfigMap")
    for text in data.values():
        board = json.loads(text)
        (cluster,) = (each for each in board["templating"]["list"] if each["name"] == "cluster")
        assert cluster["query"] == "label_values(horovodjob_operator_leader, k8s)"
        queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
        assert [query for query in queries if 'k8s=~"$cluster"' not in query or "cluster=~" in query] == []
