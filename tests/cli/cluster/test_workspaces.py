"""`hvj workspace`: namespaces; hvj deletes only those that it created."""

from cli.program import Hvj
from support.api_client import Api


def test_the_workspace_of_the_tutorial_is_created_shown_listed_and_deleted(hvj: Hvj, api: Api) -> None:
    created = hvj("workspace", "create", "--resource-group", "batchai.horovod", "--workspace", "batchaidev").data
    assert (created["name"], created["provisioningState"]) == ("batchaidev", "succeeded")
    assert hvj("workspace", "show", "-w", "batchaidev").data == created
    assert hvj("workspace", "list", "--query", "[?name=='batchaidev'].namespace").data == ["batchaidev"]
    assert hvj("workspace", "delete", "-w", "batchaidev", "--yes").code == 0
    assert api.find("/api/v1/namespaces/batchaidev") is None


def test_a_workspace_with_underscore_and_capitals_keeps_its_name(hvj: Hvj, api: Api) -> None:
    assert hvj("workspace", "create", "-w", "Batch_Dev").data["name"] == "Batch_Dev"
    assert (
        api.get("/api/v1/namespaces/batch-dev")["metadata"]["annotations"]["horovodjob.dev/batchai-name"] == "Batch_Dev"
    )
    assert hvj("workspace", "show", "-w", "Batch_Dev").data["namespace"] == "batch-dev"


def test_a_namespace_that_hvj_did_not_create_is_neither_a_workspace_nor_deleted(
    hvj: Hvj, api: Api, workspace: str
) -> None:
    assert [hvj("workspace", "create", "-w", "twice").code for _ in range(2)] == [0, 0]
    done = hvj("workspace", "create", "-w", workspace)
    assert (done.code, "was not created by hvj" in done.stderr) == (1, True)
    done = hvj("workspace", "delete", "-w", workspace, "--yes")
    assert (done.code, f"`kubectl delete namespace {workspace}`" in done.stderr) == (1, True)
    assert "deletionTimestamp" not in api.get(f"/api/v1/namespaces/{workspace}")["metadata"]
    done = hvj("workspace", "delete", "-w", "twice")
    words = "error: standard input is not a terminal, so this cannot be confirmed; add --yes\n"
    assert (done.code, done.stderr) == (2, words)
    assert api.find("/api/v1/namespaces/twice")
    for command in ("show", "delete"):
        done = hvj("workspace", command, "-w", "nowhere")
        assert (done.code, done.stderr) == (3, "error: workspace nowhere does not exist; see `hvj workspace list`\n")
