"""--output and --query, as in az."""

import json

import pytest
import yaml

from cli.cluster_state import ClusterState
from cli.program import Hvj, terminal


@pytest.fixture(autouse=True)
def jobs(cluster: ClusterState) -> None:
    """Two jobs."""
    cluster.create("first", pool="gpunp")
    cluster.create("second", worker={"replicas": 12, "gpus": 0})


def test_every_format_has_the_same_data_and_json_is_the_default_without_a_terminal(hvj: Hvj) -> None:
    text = hvj("job", "list").stdout
    data = json.loads(text)
    assert [job["name"] for job in data] == ["first", "second"]
    assert text == f"{json.dumps(data, indent=2)}\n"
    for each in (
        json.loads(hvj("job", "list", "-o", "jsonc").stdout),
        yaml.safe_load(hvj("job", "list", "-o", "yaml").stdout),
    ):
        assert [{**record, "age": ""} for record in each] == [{**record, "age": ""} for record in data]
    assert hvj("job", "list", "-o", "none").stdout == ""


def test_a_query_chooses_what_tables_and_tab_separated_values_have(hvj: Hvj) -> None:
    lines = hvj("job", "list", "--query", "[].{name: name, nodes: nodeCount}", "-o", "table").stdout.splitlines()
    assert lines == ["Name    Nodes", "------  -----", "first       2", "second     12"]
    query = "[].[name, nodeCount, cluster.id, inputDirectories]"
    assert hvj("job", "list", "--query", query, "-o", "tsv").stdout == "first\t2\tgpunp\t0\nsecond\t12\t\t0\n"
    for format_ in ("tsv", "table"):
        assert hvj("job", "show", "-n", "first", "--query", "nothing", "-o", format_).stdout == ""
    done = hvj("job", "show", "-n", "first", "--query", "length(nodeCount)")
    assert (done.code, done.stdout) == (2, "")
    assert "--query 'length(nodeCount)' cannot be applied to the data" in done.stderr


def test_a_terminal_shows_the_columns_that_fit_or_lines_and_json_in_color() -> None:
    for columns, first in (
        (80, ["Name    Cluster  Tool  Nodes  State   Exit code  Progress  Age"]),
        (60, ["Name    Cluster  Tool  Nodes  State   Exit code  Progress"]),
        (40, ["Name       first", "Cluster    gpunp", "Tool       mpi", "Nodes      2"]),
    ):
        with terminal("job", "list", columns=columns) as screen:
            assert screen.end() == 0
        lines = screen.shown.splitlines()
        assert (lines[: len(first)], max(map(len, lines)) <= columns) == (first, True)
    with terminal("job", "show", "-n", "first", "-o", "jsonc", "--query", "name") as screen:
        assert screen.end() == 0
    assert ("\x1b[" in screen.shown, '"first"' in screen.shown) == (True, True)
