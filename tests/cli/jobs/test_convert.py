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


def test_a_job_without_secret_values_is_printed_alone(hvj: Hvj, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_BATCHAI_STORAGE_KEY", "not-in-the-file")
    write(small())
    result = hvj("-f", "job.json")
    (job,) = yaml.safe_load_all(result.stdout)
    assert job["kind"] == "HorovodJob"
    assert job["metadata"]["name"] == "job"
    assert "namespace" not in job["metadata"]


def test_options_override_the_file(hvj: Hvj, write: Write) -> None:
    write(small())
    result = hvj("-f", "job.json", "-c", "gpunp", "--image", "example/other:2", "--gpus", "0")
    spec = yaml.safe_load(result.stdout)["spec"]
    assert (spec["pool"], spec["image"]) == ("gpunp", "example/other:2")
    assert spec["worker"] == {"replicas": 2, "gpus": 0}
    result = hvj("-f", "job.json", "--pod-security", "restricted", "--as-worker")
    spec = yaml.safe_load(result.stdout)["spec"]
    assert (spec["podSecurity"], spec["launcher"]) == ("Restricted", {"asWorker": True})


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
    assert result.code == 2
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert all(line.startswith("error: job.json: ") for line in lines)
    assert [word for line in lines for word in line.split(": ") if word.startswith(("--c", "prop"))] == [
        "properties.mountVolumes.azureFileShares[0].azureFileUrl",
        "--cluster",
    ]


@pytest.mark.parametrize("kind", ["json", "yaml"])
def test_the_file_can_be_standard_input_in_json_or_yaml(hvj: Hvj, kind: str) -> None:
    text = json.dumps(small()) if kind == "json" else yaml.safe_dump(small())
    result = hvj("-f", "-", "--name", "one", stdin=text)
    assert yaml.safe_load(result.stdout)["metadata"]["name"] == "one", result.stderr


def test_an_mpijob_is_recognized_by_its_kind(hvj: Hvj, write: Write) -> None:
    containers = [{"name": "main", "image": "example/a:1", "command": ["mpirun", "-np", "1", "./a"]}]
    replica = {"template": {"spec": {"containers": containers}}}
    replicas = {"Launcher": replica, "Worker": replica}
    metadata = {"name": "pi", "namespace": "team"}
    write(
        {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": metadata}
        | {"spec": {"mpiReplicaSpecs": replicas, "sshAuthMountPath": "/root/.ssh"}},
        "pi.json",
    )
    result = hvj("-f", "pi.json")
    job = yaml.safe_load(result.stdout)
    assert job["metadata"] == metadata
    assert job["spec"]["command"] == ["./a"]
    assert "warning: spec.sshAuthMountPath" in result.stderr


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


@pytest.mark.parametrize("form", ["documents", "List", "MPIJobList"])
def test_each_mpijob_of_a_file_is_converted_and_other_objects_stay(hvj: Hvj, write: Write, form: str) -> None:
    objects: list[Object] = [CONFIG, mpijob_manifest("one"), POLICY, mpijob_manifest("two")]
    if form == "documents":
        write(yaml.safe_dump_all(copy.deepcopy(objects)), "jobs.yaml")
    else:
        write(yaml.safe_dump({"apiVersion": "v1", "kind": form, "items": copy.deepcopy(objects)}), "jobs.yaml")
    result = hvj("-f", "jobs.yaml")
    assert result.code == 0, result.stderr
    printed = list(yaml.safe_load_all(result.stdout))
    assert [(each["kind"], each["metadata"]["name"]) for each in printed] == [
        ("ConfigMap", "scripts"),
        ("HorovodJob", "one"),
        ("NetworkPolicy", "ssh"),
        ("HorovodJob", "two"),
    ]
    assert printed[0] == CONFIG
    assert "warning: ConfigMap scripts is printed unchanged\n" in result.stderr
    assert "NetworkPolicy ssh is printed unchanged; it has labels of Kubeflow's pods" in result.stderr
    assert "warning: MPIJob two: spec" in result.stderr


def test_one_name_does_not_fit_several_mpijobs(hvj: Hvj, write: Write) -> None:
    write(yaml.safe_dump_all([mpijob_manifest("one"), mpijob_manifest("two")]), "jobs.yaml")
    result = hvj("-f", "jobs.yaml", "--name", "three")
    assert (result.code, result.stdout) == (2, "")
    assert result.stderr == (
        "error: jobs.yaml has 2 MPIJobs, and --name names one: convert that one from a separate file\n"
    )


def test_a_problem_of_one_of_several_mpijobs_names_it(hvj: Hvj, write: Write) -> None:
    broken = mpijob_manifest("two")
    del broken["spec"]["mpiReplicaSpecs"]["Launcher"]
    write(yaml.safe_dump_all([mpijob_manifest("one"), broken]), "jobs.yaml")
    result = hvj("-f", "jobs.yaml")
    assert (result.code, result.stdout) == (2, "")
    assert "error: jobs.yaml: MPIJob two: spec.mpiReplicaSpecs.Launcher: is missing" in result.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("{", "is not valid JSON: line 1"),
        ("a: [", "is not valid YAML: line"),
        ("- a", "where an object"),
        ("kind: HorovodJob", "kubectl apply -f"),
        ("apiVersion: batch/v1\nkind: Job", "only job.json and MPIJob"),
        ("a: 1\n---\nb: 2", "has 2 documents"),
        ("kind: List\nitems: 3", "items are not a list of objects"),
    ],
)
def test_a_conversion_error_is_one_sentence(hvj: Hvj, write: Write, text: str, words: str) -> None:
    write(text, "file.yaml")
    result = hvj("-f", "file.yaml")
    assert (result.code, result.stdout) == (2, "")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


ALIASES = "a0: &a0 [1, 2, 3, 4]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 7))
MERGES = "a0: &a0 {b: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 7))
VARIABLES = [{"name": f"V{number}", "value": "1"} for number in range(20_000)]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"a":' * 200 + "1" + "}" * 200, id="deep JSON"),
        pytest.param('{"a":' * 100_000, id="JSON deeper than the stack"),
        pytest.param("a: " + "[" * 100_000, id="deep YAML"),
        pytest.param("- " * 100_000 + "1", id="deep YAML in blocks"),
        pytest.param(ALIASES, id="aliases of aliases"),
        pytest.param(MERGES, id="merged aliases of aliases"),
        pytest.param("a: &a [*a]", id="an alias of itself"),
        pytest.param("".join(f"a{n}: &a{n} [[[{f'*a{n - 1}' if n else 1}]]]\n" for n in range(50)), id="deep aliases"),
        pytest.param(json.dumps(small(environmentVariables=VARIABLES)), id="variables in JSON"),
        pytest.param(yaml.dump(small(environmentVariables=VARIABLES), Dumper=yaml.CSafeDumper), id="variables in YAML"),
    ],
)
def test_a_file_that_would_take_long_or_much_memory_is_one_sentence(hvj: Hvj, write: Write, text: str) -> None:
    write(text, "file.yaml")
    result = hvj("-f", "file.yaml")
    assert (result.code, result.stdout) == (2, "")
    assert "error: file.yaml has more than 100 levels or 20000 values" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("text", ["a: 2024-13-45", '{"a": ' + "9" * 5000 + "}"])
def test_a_value_that_cannot_be_read_is_one_sentence(hvj: Hvj, write: Write, text: str) -> None:
    write(text, "file.yaml")
    result = hvj("-f", "file.yaml")
    assert (result.code, result.stdout) == (2, "")
    assert "file.yaml has a value that cannot be read" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_file_that_is_too_large_is_not_read_to_its_end(hvj: Hvj) -> None:
    result = hvj("-f", "/dev/zero")
    assert (result.code, result.stdout) == (2, "")
    assert result.stderr == "error: /dev/zero has more than 3 MiB, which is not the file of a job\n"


@pytest.mark.parametrize("options", [["-f", "none.json"], [], ["-f", "job.json", "--nfs-server", "nfs"]])
def test_a_usage_error_is_one_sentence(hvj: Hvj, write: Write, options: list[str]) -> None:
    write(small())
    result = hvj(*options)
    assert (result.code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1


def test_variables_of_the_command_line_override_those_of_the_file(hvj: Hvj, write: Write) -> None:
    write(small(environmentVariables=[{"name": "A", "value": "file"}, {"name": "B", "value": "file"}]))
    result = hvj("-f", "job.json", "--env", "A=x=y", "--env", "C=")
    assert result.code == 0, result.stderr
    job = list(yaml.safe_load_all(result.stdout))[-1]
    assert job["spec"]["env"] == [
        {"name": "B", "value": "file"},
        {"name": "A", "value": "x=y"},
        {"name": "C", "value": ""},
    ]


def test_a_variable_without_a_value_is_a_usage_error(hvj: Hvj, write: Write) -> None:
    write(small())
    result = hvj("-f", "job.json", "--env", "A")
    assert (result.code, result.stdout) == (2, "")
    assert result.stderr == "error: --env 'A' must be NAME=VALUE\n"
