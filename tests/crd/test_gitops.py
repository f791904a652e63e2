"""GitOps tools and the manifest of a job: apply it again, compare, change and replace it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.api_client import JOBS, ROOT, Api, Object, job
from support.gitops.health import GITOPS
from support.invariants import kstatus

EXAMPLES = sorted((ROOT / "manifests" / "examples").glob("*.yaml"))
SUCCEEDED = yaml.safe_load((GITOPS / "argocd" / "testdata" / "succeeded.yaml").read_text())
ENDED = "image cannot change, because the job has ended and never runs again: create a job with another name"
APPLY = "application/apply-patch+yaml"


def namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def apply_manifest(api: Api, body: Object) -> Object:
    """The job as it is after a server-side apply of its manifest, as Argo CD and Flux do it."""
    path = f"{JOBS.format('default')}/{body['metadata']['name']}?fieldManager=gitops&force=true"
    return api.request("PATCH", path, body, APPLY)


@pytest.fixture(scope="module")
def manifests(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All jobs of the manifests, and the objects that they need."""
    rendered = api.kubectl("kustomize", str(GITOPS / "example" / "jobs")).stdout
    examples = [yaml.safe_load(path.read_text()) for path in EXAMPLES]
    file = tmp_path_factory.mktemp("gitops") / "manifests.yaml"
    file.write_text(yaml.safe_dump_all([namespace("batchaidev"), *yaml.safe_load_all(rendered), *examples]))
    return file


@pytest.fixture
def finished_job(api: Api, request: pytest.FixtureRequest) -> Iterator[Object]:
    """A job that was applied and has succeeded."""
    shares = [{"name": "myshare", "account": "mystorageaccount", "share": "myshare"}]  # its items have defaults
    body = job(request.node.originalname.replace("_", "-")[:40], azureFiles=shares)
    path = f"{JOBS.format('default')}/{body['metadata']['name']}"
    apply_manifest(api, body)
    api.patch(f"{path}/status", {"status": SUCCEEDED["status"] | {"observedGeneration": 1}})
    yield body
    api.delete(path)


@pytest.mark.parametrize("options", [(), ("--server-side", "--force-conflicts")], ids=["client-side", "server-side"])
def test_applied_manifests_have_no_diff(api: Api, manifests: Path, options: tuple[str, ...]) -> None:
    for verb in ("apply", "diff"):
        done = api.kubectl(verb, *options, "-f", str(manifests))
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_finished_job_cannot_be_replaced_and_runs_again_with_force(
    api: Api, finished_job: Object, tmp_path: Path
) -> None:
    path = f"{JOBS.format('default')}/{finished_job['metadata']['name']}"
    before = api.get(path)
    manifest = tmp_path / "job.yaml"
    manifest.write_text(yaml.safe_dump({**finished_job, "spec": {**finished_job["spec"], "image": "trainer:2"}}))
    assert ENDED in api.kubectl("replace", "-f", str(manifest)).stderr
    assert api.kubectl("replace", "--force", "-f", str(manifest)).returncode == 0
    after = api.get(path)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["status"] == {"observedGeneration": -1}
    assert kstatus([after]) == ["InProgress"]


@pytest.mark.parametrize(("written", "kept"), [({}, True), ({"runPolicy": {"suspend": False}}, False)], ids=str)
def test_a_suspension_stays_unless_the_manifest_has_the_field(api: Api, written: Object, kept: bool) -> None:
    body = job("kept" if kept else "reverted", **written)
    apply_manifest(api, body)
    api.patch(f"{JOBS.format('default')}/{body['metadata']['name']}", {"spec": {"runPolicy": {"suspend": True}}})
    assert apply_manifest(api, body)["spec"]["runPolicy"]["suspend"] is kept
