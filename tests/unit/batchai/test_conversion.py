"""Conversion of job.json: fields, rejections and warnings."""

import json

import pytest

from horovodjob.batchai.conversion import ConversionError, convert
from support.batchai_documents import (
    CLUSTER,
    HOROVOD,
    ROOT,
    SECRET_VALUES,
    SMALL,
    converted,
    everything,
    problems,
    small,
    spec_of,
    warnings,
)


def test_a_small_job_has_only_the_requested_fields_and_a_null_equals_an_absent_one() -> None:
    absent = {"caffeSettings": None, "secrets": None, "cluster": None, "provisioningState": None}
    assert converted({"properties": SMALL | absent}) == converted(small())
    assert spec_of(SMALL) == spec_of(small()), "without `properties`"
    assert spec_of(small()) == {
        "image": "example/training:1",
        "worker": {"replicas": 2},
        "script": {"path": "$(AZ_BATCHAI_JOB_MOUNT_ROOT)/share/train.py", "interpreter": "python"},
        "azureFiles": [{"name": "share", "account": "account", "share": "share"}],
        "podSecurity": "Baseline",
        "logs": {"pathPrefix": "$(AZ_BATCHAI_JOB_MOUNT_ROOT)/share/logs"},
        "runPolicy": {"activeDeadlineSeconds": 604800},
    }


def test_names_of_job_experiment_and_workspace_become_name_label_and_namespace() -> None:
    metadata = converted(small(), name="CIFAR_distributed", namespace="lab", experiment="Cifar_10").job["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("cifar-distributed", "lab")
    assert metadata["annotations"] == {"horovodjob.dev/batchai-name": "CIFAR_distributed"}
    assert metadata["labels"] == {"horovodjob.dev/experiment": "Cifar_10"}


def test_a_name_without_letters_and_an_invalid_experiment_are_rejected() -> None:
    assert set(problems(small(), name="___", experiment="__")) == {"--name", "--experiment"}


def test_numbers_can_be_strings() -> None:
    document = small(nodeCount="4", horovodSettings=HOROVOD | {"processCount": "8"})
    assert spec_of(document)["worker"] == {"replicas": 4, "gpus": 2, "slots": 2}


@pytest.mark.parametrize("count", [True, "four", 0, 1.5, [2], "", 10**9, float("inf"), float("nan"), "9" * 5000])
def test_an_invalid_number_of_nodes_is_rejected(count: object) -> None:
    assert list(problems(small(nodeCount=count))) == ["properties.nodeCount"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("P7D", 604800),
        ("PT1H30M", 5400),
        ("P1W", 604800),
        ("2 days", 172800),
        ("PT0.5S", 1),
        ("7.00:00:00", 604800),
        ("00:10:00.5000000", 601),
        ("7 days, 0:00:00", 604800),
        ("1 day, 2:03:04", 93784),
    ],
)
def test_a_duration_is_accepted_in_three_formats(text: str, seconds: int) -> None:
    assert spec_of(small(constraints={"maxWallClockTime": text}))["runPolicy"]["activeDeadlineSeconds"] == seconds


@pytest.mark.parametrize("text", ["P", "PT", "P1M", "P1Y", "soon", "12", "-P1D", "PT0S", "P99999D", "1:2", "٣:00:00"])
def test_an_invalid_duration_is_rejected(text: str) -> None:
    assert list(problems(small(constraints={"maxWallClockTime": text}))) == ["properties.constraints.maxWallClockTime"]


def test_the_pool_is_the_last_part_of_the_cluster_id_unless_an_option_overrides_it() -> None:
    assert spec_of(small(cluster={"id": CLUSTER}))["pool"] == "gpunp"
    assert spec_of(small(cluster={"id": CLUSTER}), pool="other")["pool"] == "other"
    assert spec_of(small(), pool=CLUSTER)["pool"] == "gpunp"


def test_a_cluster_name_that_is_no_aks_pool_name_is_rejected() -> None:
    sentence = problems(small(cluster={"id": "/clusters/My_Cluster"}))["properties.cluster.id"]
    assert "12 lower-case letters and digits" in sentence
    assert "--cluster" in sentence
    assert "--cluster" in problems(small(cluster={"id": CLUSTER}), pool="My_Cluster")


def test_priorities_become_priority_classes_with_a_warning() -> None:
    document = small(schedulingPriority="low")
    assert spec_of(document)["priorityClassName"] == "horovodjob-low"
    assert "kubectl create priorityclass horovodjob-low" in warnings(document)
    assert "priorityClassName" not in spec_of(small(schedulingPriority="normal"))
    assert "properties.schedulingPriority" in problems(small(schedulingPriority="urgent"))


def test_processes_are_spread_evenly_over_the_nodes() -> None:
    assert spec_of(small(horovodSettings=HOROVOD | {"processCount": 8}))["worker"] == {
        "replicas": 2,
        "gpus": 4,
        "slots": 4,
    }
    sentence = problems(small(horovodSettings=HOROVOD | {"processCount": 7}))
    assert "multiple of 2" in sentence["properties.horovodSettings.processCount"]


@pytest.mark.parametrize(
    ("gpus", "worker"),
    [(0, {"replicas": 2, "gpus": 0}), (4, {"replicas": 2, "gpus": 4, "slots": 1}), (None, {"replicas": 2})],
)
def test_the_number_of_gpus_does_not_change_the_number_of_processes(gpus: int | None, worker: object) -> None:
    assert spec_of(small(), gpus=gpus)["worker"] == worker


@pytest.mark.parametrize(
    ("directory", "path"),
    [
        ({"id": "my-data", "path": "/data"}, "properties.inputDirectories[0].id"),
        ({"id": "DATA"}, "properties.inputDirectories[0].path"),
        ({"path": "/data"}, "properties.inputDirectories[0].id"),
        ({"id": "DATA", "path": "$HOME/data"}, "properties.inputDirectories[0].path"),
        ({"id": "DATA", "path": "$AZ_BATCHAI_SHARED_JOB_TEMP"}, "properties.inputDirectories[0].path"),
    ],
)
def test_an_invalid_input_is_rejected(directory: object, path: str) -> None:
    assert list(problems(small(inputDirectories=[directory]))) == [path]


def test_the_log_directory_must_be_on_a_share() -> None:
    document = small(stdOutErrPathPrefix="$AZ_BATCHAI_JOB_TEMP_DIR")
    assert "logs" not in spec_of(document)
    assert "properties.stdOutErrPathPrefix: is deleted with the pods" in warnings(document)
    assert "properties.stdOutErrPathPrefix" in problems(small(stdOutErrPathPrefix="logs"))
    assert "properties.stdOutErrPathPrefix" in problems(small(stdOutErrPathPrefix=None))


def test_a_path_on_a_cluster_mount_is_moved_below_the_mounts_of_the_job() -> None:
    document = small(stdOutErrPathPrefix="$AZ_BATCHAI_MOUNT_ROOT/external/logs")
    assert spec_of(document)["logs"]["pathPrefix"] == "$(AZ_BATCHAI_JOB_MOUNT_ROOT)/external/logs"
    assert "properties.stdOutErrPathPrefix: no entry of mountVolumes is mounted at external" in warnings(document)
    assert "no entry of mountVolumes" not in warnings(small(stdOutErrPathPrefix="${AZ_BATCHAI_MOUNT_ROOT}/share"))


def test_a_variable_becomes_a_variable_of_the_ranks() -> None:
    variables = [{"name": "DATA", "value": f"{ROOT}/share"}, {"name": "PRICE", "value": "$5 or $HOME"}]
    env = spec_of(small(environmentVariables=variables))["env"]
    assert env[0] == {"name": "DATA", "value": "$(AZ_BATCHAI_JOB_MOUNT_ROOT)/share"}
    assert env[1] == {"name": "PRICE", "value": "$$5 or $$HOME"}


@pytest.mark.parametrize("name", ["AZ_BATCHAI_X", "HOROVODJOB_X", "MY-NAME", "2ND", "", None])
def test_a_variable_that_cannot_be_set_is_rejected(name: object) -> None:
    document = small(environmentVariables=[{"name": name, "value": "x"}])
    assert list(problems(document)) == ["properties.environmentVariables[0].name"]


def test_a_duplicate_variable_is_rejected() -> None:
    document = small(environmentVariables=[{"name": "A", "value": "x"}], secrets=[{"name": "A", "value": "y"}])
    assert list(problems(document)) == ["properties.secrets[0].name"]


def test_secret_values_are_only_in_secrets_and_those_of_a_key_vault_are_created_by_the_user() -> None:
    result = converted(everything(), namespace="lab")
    assert not any(value in json.dumps([result.job, result.warnings]) for value in SECRET_VALUES)
    assert all(value in json.dumps(result.secrets) for value in SECRET_VALUES)
    assert {secret["metadata"]["namespace"] for secret in result.secrets} == {"lab"}
    for name, secret in (("TOKEN", "job-secrets"), ("LICENSE", "job-keyvault")):
        reference = {"secretKeyRef": {"name": secret, "key": name}}
        assert {"name": name, "valueFrom": reference} in result.job["spec"]["env"]
    (warning,) = [each for each in result.warnings if each.startswith("properties.secrets[1].valueSecretReference")]
    assert "Secret job-keyvault with the key LICENSE" in warning
    assert "https://v/license" in warning
    assert "job-keyvault" not in [secret["metadata"]["name"] for secret in result.secrets]


def test_all_problems_are_reported_at_once_without_a_secret_value() -> None:
    document = everything()
    properties = document["properties"]
    properties |= {"nodeCount": "many", "constraints": {"maxWallClockTime": "soon"}, "horovodSettings": {}}
    properties["secrets"][0] |= {"name": "no name", "valueSecretReference": {"secretUrl": 5}}
    properties["containerSettings"]["imageSourceRegistry"]["credentials"]["passwordSecretReference"] = {}
    shares, commands = (properties["mountVolumes"][key] for key in ("azureFileShares", "unmanagedFileSystems"))
    shares[0]["credentials"]["accountKeySecretReference"] = {}
    shares[1]["azureFileUrl"] = "logs"
    commands[0]["mountCommand"] = "mount -t glusterfs g:/v"
    commands[1]["mountCommand"] += " and more"
    with pytest.raises(ConversionError) as error:
        convert(document, name="job")
    assert not any(value in str(error.value) + str(error.value.warnings) for value in SECRET_VALUES)
    paths = {problem.path.removeprefix("properties.") for problem in error.value.problems}
    assert paths >= {
        *("nodeCount", "constraints.maxWallClockTime", "horovodSettings.pythonScriptFilePath"),
        *("mountVolumes.azureFileShares[1].azureFileUrl", "mountVolumes.fileServers[0].fileServer.id"),
        *(f"mountVolumes.unmanagedFileSystems[{index}].mountCommand" for index in (0, 1)),
    }
    assert len(paths) >= 10


def test_unknown_keys_cause_warnings_with_their_path() -> None:
    document = everything() | {"extra": 1, "location": "eastus", "tags": {"a": "b"}, "type": "x"}
    document["properties"]["nodeCounts"] = 2
    document["properties"]["mountVolumes"]["azureFileShares"][1]["relativeMountpath"] = "x"
    document["properties"]["horovodSettings"]["hosts"] = {"a": [1]}
    unknown = [warning for warning in converted(document).warnings if "is not a field" in warning]
    assert [warning.partition(":")[0] for warning in unknown] == [
        "properties.horovodSettings.hosts",
        "properties.mountVolumes.azureFileShares[1].relativeMountpath",
        "properties.nodeCounts",
        "extra",
    ]
    assert "is nodeCount meant?" in unknown[2]


@pytest.mark.parametrize("document", [None, [], "text", 5, {}, {"properties": 5}, {"properties": []}])
def test_a_document_that_is_no_job_is_rejected(document: object) -> None:
    assert problems(document)


def test_a_deeply_nested_document_is_rejected() -> None:
    nested: object = []
    for _ in range(100_000):
        nested = [nested]
    assert "levels" in problems(small(secrets=nested))[""]
    nested = {"value": 10**5000}
    assert problems(small(environmentVariables=[{"name": "A"} | nested])) == {
        "properties.environmentVariables[0].value": "must be a string: put it into quotes"
    }
