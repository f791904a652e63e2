"""`hvj convert` as a user runs it: no cluster, YAML on standard output, everything else on standard error."""

import copy
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.program import Hvj, run
from support.batchai_documents import EVERYTHING, SECRET_VALUES, Object, small

SHARE = "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/share"
KEY = "<AZURE_BATCHAI_STORAGE_KEY>"


Write = Callable[..., None]


@pytest.fixture
def hvj(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hvj:
    """Runs `hvj convert` in a directory of the test, without a cluster."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    for variable in ("AZURE_BATCHAI_STORAGE_ACCOUNT", "AZURE_BATCHAI_STORAGE_KEY"):
        monkeypatch.delenv(variable, raising=False)
    return partial(run, "convert")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a document to the directory of the command."""

    def put(document: Any, name: str = "job.json") -> None:
        (tmp_path / name).write_text(document if isinstance(document, str) else json.dumps(document))

    return put


def placeholders() -> Object:
    share = {"azureFileUrl": SHARE, "relativeMountPath": "share", "credentials": {"accountKey": KEY}}
    return small(mountVolumes={"azureFileShares": [share]})


def test_the_output_has_secrets_and_job_and_no_warnings(hvj: Hvj, write: Write) -> None:
    write(EVERYTHING)
    result = hvj("-f", "job.json", "-n", "Big_Job", "-w", "Batch_AI", "-e", "cifar", "--nfs-server", "nfs=h:/p")
    assert result.code == 0, result.stderr
    objects = list(yaml.safe_load_all(result.stdout))
    assert [each["kind"] for each in objects] == ["Secret"] * 4 + ["HorovodJob"]
    assert {each["metadata"]["namespace"] for each in objects} == {"batch-ai"}
    assert objects[-1]["metadata"]["labels"] == {"horovodjob.dev/experiment": "cifar"}
    assert all(line.startswith("warning: properties") for line in result.stderr.splitlines())
    assert not any(value in result.stderr for value in SECRET_VALUES)


def test_placeholders_are_replaced_from_options_or_the_environment(
    hvj: Hvj, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(placeholders())
    given = hvj("-f", "job.json", "--storage-account-name", "account", "--storage-account-key", "k")
    monkeypatch.setenv("AZURE_BATCHAI_STORAGE_ACCOUNT", "account")
    monkeypatch.setenv("AZURE_BATCHAI_STORAGE_KEY", "k")
    assert hvj("-f", "job.json").stdout == given.stdout
    secret, job = yaml.safe_load_all(given.stdout)
    assert secret["stringData"]["azurestorageaccountkey"] == "k"
    assert job["spec"]["azureFiles"][0]["account"] == "account"


def test_each_problem_of_a_file_is_a_line_and_nothing_is_printed(hvj: Hvj, write: Write) -> None:
    write(placeholders() | {"location": "eastus"})
    result = hvj("-f", "job.json", "-c", "My_Cluster")
    first, second = result.stderr.splitlines()
    assert (result.code, result.stdout) == (2, "")
    assert first.startswith("error: job.json: properties.mountVolumes.azureFileShares[0].azureFileUrl: ")
    assert second.startswith("error: job.json: --cluster: ")


def mpijob_manifest(name: str) -> Object:
    containers = [{"name": "main", "image": "example/a:1", "command": ["mpirun", "./a"]}]
    replica = {"template": {"spec": {"containers": containers}}}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {"mpiReplicaSpecs": {"Launcher": replica, "Worker": replica}},
    }


CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "scripts"}, "data": {"a.sh": "mpirun ./a"}}
POLICY = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "ssh"},
    "spec": {"podSelector": {"matchLabels": {"training.kubeflow.org/job-name": "one"}}},
}


def test_options_override_the_file_and_a_job_without_secret_values_is_printed_alone(
    hvj: Hvj, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_BATCHAI_STORAGE_KEY", "not-in-the-file")
    write(small(environmentVariables=[{"name": "A", "value": "file"}, {"name": "B", "value": "file"}]))
    (job,) = yaml.safe_load_all(hvj("-f", "job.json").stdout)
    assert (job["kind"], job["metadata"]["name"], "namespace" in job["metadata"]) == ("HorovodJob", "job", False)
    security = ("--pod-security", "restricted", "--as-worker")
    result = hvj(
        "-f", "job.json", "-c", "gpunp", "--image", "example/other:2", "--gpus", "0", *security, "--env", "A=x=y"
    )
    spec = yaml.safe_load(result.stdout)["spec"]
    assert (spec["pool"], spec["image"]) == ("gpunp", "example/other:2")
    assert spec["worker"] == {"replicas": 2, "gpus": 0}
    assert (spec["podSecurity"], spec["launcher"]) == ("Restricted", {"asWorker": True})
    assert spec["env"] == [{"name": "B", "value": "file"}, {"name": "A", "value": "x=y"}]
    result = hvj("-f", "-", "--name", "one", stdin=yaml.safe_dump(small()))
    assert yaml.safe_load(result.stdout)["metadata"]["name"] == "one", result.stderr


def test_each_mpijob_of_a_file_is_converted_and_other_objects_stay(hvj: Hvj, write: Write) -> None:
    objects: list[Object] = [CONFIG, mpijob_manifest("one"), POLICY, mpijob_manifest("two")]
    write(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": copy.deepcopy(objects)}), "jobs.yaml")
    result = hvj("-f", "jobs.yaml")
    assert result.code == 0, result.stderr
    printed = list(yaml.safe_load_all(result.stdout))
    assert [(each["kind"], each["metadata"]["name"]) for each in printed] == [
        ("ConfigMap", "scripts"),
        ("HorovodJob", "one"),
        ("NetworkPolicy", "ssh"),
        ("HorovodJob", "two"),
    ]
    assert (printed[0], printed[1]["spec"]["command"]) == (CONFIG, ["./a"])
    assert "warning: ConfigMap scripts is printed unchanged\n" in result.stderr
    assert "NetworkPolicy ssh is printed unchanged; it has labels of Kubeflow's pods" in result.stderr
    assert "warning: MPIJob two: spec" in result.stderr
    result = hvj("-f", "jobs.yaml", "--name", "three")
    words = "error: jobs.yaml has 2 MPIJobs, and --name names one: convert that one from a separate file\n"
    assert (result.code, result.stdout, result.stderr) == (2, "", words)
    del objects[-1]["spec"]["mpiReplicaSpecs"]["Launcher"]
    write(yaml.safe_dump_all(objects), "jobs.yaml")
    result = hvj("-f", "jobs.yaml")
    assert (result.code, result.stdout) == (2, "")
    assert "error: jobs.yaml: MPIJob two: spec.mpiReplicaSpecs.Launcher: is missing" in result.stderr


ALIASES = "a0: &a0 [1, 2, 3, 4]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 7))
VARIABLES = [{"name": f"V{number}", "value": "1"} for number in range(20_000)]
LIMITS = "file.yaml has more than 100 levels or 20000 values"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("a: [", "is not valid YAML: line"),
        ("kind: HorovodJob", "kubectl apply -f"),
        ("apiVersion: batch/v1\nkind: Job", "only job.json and MPIJob"),
        ("a: 1\n---\nb: 2", "has 2 documents"),
        ("kind: List\nitems: 3", "items are not a list of objects"),
        ("a: 2024-13-45", "file.yaml has a value that cannot be read"),
        pytest.param('{"a":' * 100_000, LIMITS, id="JSON deeper than the stack"),
        pytest.param("a: " + "[" * 100_000, LIMITS, id="deep YAML"),
        pytest.param(ALIASES, LIMITS, id="aliases of aliases"),
        pytest.param("a: &a [*a]", LIMITS, id="an alias of itself"),
        pytest.param(json.dumps(small(environmentVariables=VARIABLES)), LIMITS, id="variables in JSON"),
    ],
)
def test_a_file_that_cannot_be_converted_or_takes_much_time_or_memory_is_one_sentence(
    hvj: Hvj, write: Write, text: str, words: str
) -> None:
    write(text, "file.yaml")
    result = hvj("-f", "file.yaml")
    assert (result.code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert words in result.stderr


def test_a_usage_error_is_one_sentence(hvj: Hvj, write: Write) -> None:
    write(small())
    for options, words in (
        (("-f", "none.json"), "cannot read none.json"),
        ((), "--config-file"),
        (("-f", "job.json", "--nfs-server", "nfs"), "must be NAME=HOST:/PATH"),
        (("-f", "job.json", "--env", "A"), "error: --env 'A' must be NAME=VALUE"),
        (("-f", "/dev/zero"), "error: /dev/zero has more than 3 MiB, which is not the file of a job"),
    ):
        result = hvj(*options)
        assert (result.code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
        assert words in result.stderr
