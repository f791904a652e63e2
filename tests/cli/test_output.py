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


def test_json_is_the_default_without_a_terminal(hvj: Hvj) -> None:
    assert [job["name"] for job in json.loads(hvj("job", "list").stdout)] == ["first", "second"]


def test_every_format_has_the_same_data(hvj: Hvj) -> None:
    text = hvj("job", "list", "-o", "json").stdout
    data = json.loads(text)
    assert text == f"{json.dumps(data, indent=2)}\n"
    for each in (json.loads(hvj("job", "list", "-o", "jsonc").stdout), yaml.safe_load(hvj("job", "list").stdout)):
        assert [record | {"age": ""} for record in each] == [record | {"age": ""} for record in data]
    assert yaml.safe_load(hvj("job", "list", "-o", "yaml").stdout)[0]["id"] == data[0]["id"]
    assert hvj("job", "list", "-o", "none").stdout == ""


def test_a_query_applies_to_tables_too_and_names_their_columns(hvj: Hvj) -> None:
    lines = hvj("job", "list", "--query", "[].{name: name, nodes: nodeCount}", "-o", "table").stdout.splitlines()
    assert lines == ["Name    Nodes", "------  -----", "first       2", "second     12"]


def test_tab_separated_values_have_a_line_for_each_item(hvj: Hvj) -> None:
    query = "[].[name, nodeCount, cluster.id, inputDirectories]"
    assert hvj("job", "list", "--query", query, "-o", "tsv").stdout == "first\t2\tgpunp\t0\nsecond\t12\t\t0\n"


def test_a_query_without_a_result_prints_the_output_of_az(hvj: Hvj) -> None:
    assert hvj("job", "show", "-n", "first", "--query", "nothing", "-o", "tsv").stdout == ""
    assert hvj("job", "show", "-n", "first", "--query", "nothing", "-o", "table").stdout == ""


def test_a_query_that_does_not_match_the_data_is_a_usage_error(hvj: Hvj) -> None:
    done = hvj("job", "show", "-n", "first", "--query", "length(nodeCount)")
    assert (done.code, done.stdout) == (2, "")
    assert "--query 'length(nodeCount)' cannot be applied to the data" in done.stderr


def test_a_terminal_shows_a_table_and_keeps_its_width(hvj: Hvj) -> None:
    with terminal("job", "list") as screen:
        assert screen.end() == 0
    lines = screen.shown.splitlines()
    assert lines[0] == "Name    Cluster  Tool  Nodes  State   Exit code  Progress  Age"
    assert max(map(len, lines)) <= 80


def test_a_narrow_terminal_shows_fewer_optional_columns(hvj: Hvj) -> None:
    with terminal("job", "list", columns=60) as screen:
        assert screen.end() == 0
    assert screen.shown.splitlines()[0] == "Name    Cluster  Tool  Nodes  State   Exit code  Progress"


def test_a_table_that_is_too_wide_for_the_terminal_becomes_lines(hvj: Hvj) -> None:
    with terminal("job", "list", columns=40) as screen:
        assert screen.end() == 0
    assert screen.shown.splitlines()[:4] == ["Name       first", "Cluster    gpunp", "Tool       mpi", "Nodes      2"]


def test_jsonc_has_colors_on_a_terminal(hvj: Hvj) -> None:
    with terminal("job", "show", "-n", "first", "-o", "jsonc", "--query", "name") as screen:
        assert screen.end() == 0
    assert "\x1b[" in screen.shown
    assert '"first"' in screen.shown
