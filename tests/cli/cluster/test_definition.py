"""A cluster without the definition of HorovodJobs, or with an older one: an API server of its own."""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from cli.cluster_state import ClusterState
from cli.program import run
from horovodjob import Client, ClientError
from localcluster.control_plane.standalone import ControlPlane
from support.api_client import BASE, Api, ApiError, Object, is_served, job, wait_for

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


@pytest.fixture(scope="module")
def bare() -> Iterator[Api]:
    """An API server that serves no HorovodJobs."""
    with ControlPlane() as control_plane:
        yield Api(control_plane.kubeconfig)


@pytest.fixture(autouse=True)
def project(bare: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current directory, with a script and a job; `hvj` uses this API server."""
    (tmp_path / "train.py").write_text("print(1)")
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job("created", image="trainer:1")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(bare.kubeconfig))


@pytest.fixture
def install(bare: Api) -> Iterator[Callable[..., None]]:
    """Installs the definition with a change of its only version; removes it afterwards."""
    shipped: Object = next(
        each
        for each in yaml.safe_load_all((BASE / "crd.yaml").read_text())
        if each["kind"] == "CustomResourceDefinition"
    )

    def create(change: Callable[[Object], object]) -> None:
        definition = copy.deepcopy(shipped)
        (version,) = definition["spec"]["versions"]
        change(version)
        bare.create(DEFINITIONS, definition)
        path = f"/apis/horovodjob.dev/{version['name']}/horovodjobs"
        wait_for("the definition to be served", lambda: is_served(bare, path))

    yield create
    bare.delete(f"{DEFINITIONS}/{NAME}")
    wait_for("the definition to be gone", lambda: bare.find(f"{DEFINITIONS}/{NAME}") is None)
    wait_for("its jobs to be gone", lambda: not is_served(bare, "/apis/horovodjob.dev/v1beta1/horovodjobs"))


def test_without_the_definition_each_command_names_the_doctor() -> None:
    words = "error: the cluster does not serve this resource; `hvj doctor` shows what is missing\n"
    for command in COMMANDS:
        done = run(*command)
        assert (done.code, done.stdout, done.stderr) == (1, "", words), command
    with pytest.raises(ClientError, match="`hvj doctor` shows what is missing"):
        Client().list()
    shown = run("doctor", "-o", "json").stdout
    assert f"the cluster does not serve HorovodJobs: the definition {NAME} is not installed" in shown
    assert "kubectl apply --server-side -k manifests/base" in shown


def test_a_definition_of_another_version_is_one_sentence(install: Callable[..., None]) -> None:
    install(lambda version: version.update(name="v1alpha1"))
    for command in COMMANDS:
        done = run(*command)
        assert (done.code, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
        assert "`hvj doctor` shows what is missing" in done.stderr
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


def test_what_an_older_definition_does_not_have_is_refused_by_its_name_and_nothing_is_left(
    bare: Api, install: Callable[..., None]
) -> None:
    install(older)
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
    configuration = "/api/v1/namespaces/default/configmaps"
    assert [each for each in bare.items(configuration) if "code" in each["metadata"]["name"]] == []
    bare.create("/apis/horovodjob.dev/v1beta1/namespaces/default/horovodjobs", job("train", image="trainer:1"))
    done = run("job", "suspend", "-n", "train")
    assert (done.code, "have no spec.runPolicy.suspend, " in done.stderr) == (1, True), done.stderr


def test_jobs_of_an_older_definition_are_shown_without_what_they_lack(
    bare: Api, install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(older)
    cluster = ClusterState(bare, "default")
    created = cluster.create("train")
    cluster.run("train")
    bare.create(cluster.jobs, job("other", image="trainer:1"))
    assert [each["state"] for each in run("job", "list").data] == ["queued", "queued"]
    assert run("job", "list", "-o", "table").code == 0
    assert run("job", "show", "-n", created["metadata"]["name"]).data["phase"] == "Running"
    assert run("experiment", "list").data == []
    assert run("job", "wait", "-n", "train", "--timeout", "1s").code == 5
    assert "is of an older version: it lacks " in run("doctor", "-o", "json").stdout
    cluster.succeed("train")
    assert run("job", "wait", "-n", "train", "--quiet").code == 0


def test_an_error_of_the_user_is_not_that_of_an_older_definition(bare: Api, install: Callable[..., None]) -> None:
    install(lambda version: None)
    document = job("created", image="trainer:1", imge="trainer:2")
    Path("job.yaml").write_text(yaml.safe_dump(document))
    done = run("job", "create", "-f", "job.yaml")
    assert (done.code, "spec.imge" in done.stderr, "older" in done.stderr) == (1, True, False), done.stderr
    with pytest.raises(ApiError):
        bare.get("/apis/horovodjob.dev/v1beta1/namespaces/default/horovodjobs/created")
