"""`hvj workspace`: namespaces; hvj deletes only those that it created."""

import pytest

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


def test_an_existing_workspace_is_no_error_and_an_unmanaged_namespace_is_one(hvj: Hvj, workspace: str) -> None:
    assert [hvj("workspace", "create", "-w", "twice").code for _ in range(2)] == [0, 0]
    done = hvj("workspace", "create", "-w", workspace)
    assert done.code == 1
    assert "was not created by hvj" in done.stderr


def test_a_namespace_that_hvj_did_not_create_is_never_deleted(hvj: Hvj, api: Api, workspace: str) -> None:
    done = hvj("workspace", "delete", "-w", workspace, "--yes")
    assert done.code == 1
    assert f"`kubectl delete namespace {workspace}`" in done.stderr
    assert "deletionTimestamp" not in api.get(f"/api/v1/namespaces/{workspace}")["metadata"]


def test_deletion_prompts_and_requires_yes_without_a_terminal(hvj: Hvj, api: Api) -> None:
    hvj("workspace", "create", "-w", "kept")
    done = hvj("workspace", "delete", "-w", "kept")
    assert (done.code, done.stderr) == (
        2,
        "error: standard input is not a terminal, so this cannot be confirmed; add --yes\n",
    )
    assert api.find("/api/v1/namespaces/kept")


@pytest.mark.parametrize("command", ["show", "delete"])
def test_a_workspace_that_does_not_exist_is_not_found(hvj: Hvj, command: str) -> None:
    done = hvj("workspace", command, "-w", "nowhere")
    assert (done.code, done.stderr) == (3, "error: workspace nowhere does not exist; see `hvj workspace list`\n")
