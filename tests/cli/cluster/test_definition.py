"""A cluster without the definition of HorovodJobs, or with an older one."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from cli.cluster_state import ClusterState
from cli.program import run
from horovodjob import Client, ClientError
from support.api_client import BASE, Api, Object, is_served, job, wait_for, wait_for_admission_policy

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAME = "horovodjobs.horovodjob.dev"
IMAGE = ("--image", "trainer:1")
COMMANDS = (
    ("job", "list"),
    ("job", "list", "-A"),
    ("job", "show", "-n", "train"),
    ("job", "wait", "-n", "train"),
    ("job", "logs", "-n", "train"),
    ("job", "create", "-f", "job.yaml"),
    ("job", "terminate", "-y", "-n", "train"),
    ("job", "delete", "-y", "-n", "train"),
    ("job", "file", "list", "-j", "train"),
    ("attach", "train"),
    ("run", *IMAGE, "train.py"),
    ("run", *IMAGE, "--sweep", "lr=0.1,0.2", "train.py"),
    ("run", "--from", "train"),
    ("sweep", "show", "digits"),
    ("experiment", "list"),
)


def shipped() -> Object:
    """The definition of the manifests."""
    documents: list[Object] = [*yaml.safe_load_all((BASE / "crd.yaml").read_text())]
    return next(each for each in documents if each["kind"] == "CustomResourceDefinition")


def remove_definition(api: Api) -> None:
    """Deletes the definition with its jobs."""
    api.delete(f"{DEFINITIONS}/{NAME}")
    wait_for("the definition to be gone", lambda: api.find(f"{DEFINITIONS}/{NAME}") is None)
    wait_for("its jobs to be gone", lambda: not is_served(api, "/apis/horovodjob.dev/v1beta1/horovodjobs"))


@pytest.fixture(autouse=True)
def bare(api: Api, workspace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The API server serves no HorovodJobs; the current directory has a script and a job."""
    (tmp_path / "train.py").write_text("print(1)")
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job("created", image="trainer:1")))
    monkeypatch.chdir(tmp_path)
    remove_definition(api)
    yield
    if api.find(f"{DEFINITIONS}/{NAME}"):
        remove_definition(api)
    install(api, lambda version: None)
    wait_for_admission_policy(api)


def install(api: Api, change: Callable[[Object], object]) -> None:
    """Installs the definition with a change of its only version."""
    definition = shipped()
    (version,) = definition["spec"]["versions"]
    change(version)
    api.create(DEFINITIONS, definition)
    path = f"/apis/horovodjob.dev/{version['name']}/horovodjobs"
    wait_for("the definition to be served", lambda: is_served(api, path))


def test_without_the_definition_or_with_another_version_each_command_names_the_doctor(api: Api) -> None:
    words = "error: the cluster does not serve this resource; `hvj doctor` shows what is missing\n"
    for command in COMMANDS:
        done = run(*command)
        assert (done.code, done.stdout, done.stderr) == (1, "", words), command
    with pytest.raises(ClientError, match="`hvj doctor` shows what is missing"):
        Client().list()
    shown = run("doctor", "-o", "json").stdout
    assert f"the cluster does not serve HorovodJobs: the definition {NAME} is not installed" in shown
    assert "kubectl apply --server-side -k manifests/base" in shown
    install(api, lambda version: version.update(name="v1alpha1"))
    for command in COMMANDS[:4]:
        done = run(*command)
        assert (done.code, done.stdout, done.stderr) == (1, "", words), command
    assert "it has v1alpha1, and v1beta1 is needed" in run("doctor", "-o", "json").stdout


def older(version: Object) -> None:
    """A definition from the time before some fields of jobs and of their status."""
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    spec, status = properties["spec"], properties["status"]
    for name in ("script", "preparation", "spot"):
        del spec["properties"][name]
    del spec["properties"]["runPolicy"]["properties"]["suspend"]
    for name in ("training", "workersReady", "executionState", "outputPathSegment"):
        del status["properties"][name]
    # Rules that read what is not there any more.
    for schema in (spec, version["schema"]["openAPIV3Schema"]):
        schema.pop("x-kubernetes-validations", None)
    spec["properties"]["runPolicy"].pop("x-kubernetes-validations", None)


def test_of_an_older_definition_what_it_lacks_is_refused_by_its_name_and_jobs_are_shown(
    api: Api, workspace: str
) -> None:
    install(api, older)
    ending = "because their definition is older than this hvj: ask the cluster's administrator for an upgrade"
    for command, fields in (
        (("train.py",), "spec.preparation and no spec.script"),
        (("--", "true"), "spec.preparation, "),
        (("--spot", "--sweep", "lr=1,2", "train.py"), "spec.preparation"),
    ):
        done = run("run", "--quiet", *IMAGE, *command)
        assert (done.code, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
        assert f"error: the HorovodJobs of this cluster have no {fields}" in done.stderr
        assert ending in done.stderr
    cluster = ClusterState(api, workspace)
    assert cluster.codes() == []
    cluster.create("train")
    done = run("job", "suspend", "-n", "train")
    assert (done.code, "have no spec.runPolicy.suspend, " in done.stderr) == (1, True), done.stderr

    cluster.run("train")
    assert [each["state"] for each in run("job", "list").data] == ["queued"]
    assert run("job", "list", "-o", "table").code == 0
    assert run("job", "show", "-n", "train").data["phase"] == "Running"
    assert run("experiment", "list").data == []
    assert run("job", "wait", "-n", "train", "--timeout", "1s").code == 5
    assert "is of an older version: it lacks " in run("doctor", "-o", "json").stdout
    cluster.succeed("train")
    assert run("job", "wait", "-n", "train", "--quiet").code == 0
