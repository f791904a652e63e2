"""What the administrator of a cluster sets for all jobs."""

import pytest

from horovodjob.api.spec import HorovodJobSpec
from horovodjob_operator.domain.job_defaults import parse_job_defaults
from horovodjob_operator.settings import Settings

DEFAULTS = parse_job_defaults(
    """{
      "image": "default:1",
      "nodeSelector": {"pool": "gpu", "zone": "1"},
      "tolerations": [{"key": "sku", "value": "gpu", "effect": "NoSchedule"}, {"key": "team", "operator": "Exists"}],
      "priorityClassName": "training",
      "imagePullSecrets": [{"name": "registry"}],
      "shmSize": "1Gi",
      "mountOptions": ["actimeo=1", "nobrl"]
    }"""
)
SHARE = {"name": "data", "account": "account", "share": "data"}


def spec(**fields: object) -> HorovodJobSpec:
    return HorovodJobSpec.model_validate({"image": "image", "command": ["true"], **fields})


def test_an_empty_job_gets_all_defaults() -> None:
    job = DEFAULTS.apply_to(spec(azureFiles=[SHARE]))
    assert job.node_selector == {"pool": "gpu", "zone": "1"}
    assert [toleration.key for toleration in job.tolerations or ()] == ["sku", "team"]
    assert (job.priority_class_name, job.shm_size) == ("training", "1Gi")
    assert [secret.name for secret in job.image_pull_secrets or ()] == ["registry"]
    assert [share.mount_options for share in job.azure_files or ()] == [("actimeo=1", "nobrl")]


def test_fields_of_the_job_override_the_defaults() -> None:
    own = spec(
        nodeSelector={"zone": "2"},
        tolerations=[{"key": "sku", "value": "cpu", "effect": "NoSchedule"}],
        priorityClassName="urgent",
        imagePullSecrets=[{"name": "mine"}],
        shmSize="2Gi",
        azureFiles=[{**SHARE, "mountOptions": ["brl", "vers=3.1.1"]}, {**SHARE, "name": "nfs", "protocol": "nfs"}],
    )
    job = DEFAULTS.apply_to(own)
    assert job.node_selector == {"pool": "gpu", "zone": "2"}
    assert [(each.key, each.value) for each in job.tolerations or ()] == [("sku", "cpu"), ("team", None)]
    assert (job.priority_class_name, job.shm_size) == ("urgent", "2Gi")
    assert [secret.name for secret in job.image_pull_secrets or ()] == ["mine"]
    smb, nfs = (share.mount_options for share in job.azure_files or ())
    assert (smb, nfs) == (("actimeo=1", "brl", "vers=3.1.1"), None)


@pytest.mark.parametrize(("own", "image"), [("", "default:1"), ("own:1", "own:1")])
def test_a_job_with_an_empty_image_gets_the_default_one(own: str, image: str) -> None:
    assert DEFAULTS.apply_to(spec(image=own)).image == image


def test_without_defaults_a_job_is_unchanged() -> None:
    job = spec(azureFiles=[SHARE], nodeSelector={"zone": "2"})
    assert parse_job_defaults("").apply_to(job) == job


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("JOB_DEFAULTS", '{"toleration": []}', "toleration: Extra inputs are not permitted"),
        ("JOB_DEFAULTS", "[]", "the object: Input should be an object"),
        ("NAMESPACES", "a,B", "names 'B', which is not the name of a namespace"),
    ],
)
def test_an_invalid_setting_is_reported_by_name(variable: str, value: str, sentence: str) -> None:
    with pytest.raises(ValueError, match="HOROVODJOB_OPERATOR_") as error:
        Settings.from_environment({f"HOROVODJOB_OPERATOR_{variable}": value})
    assert str(error.value).startswith(f"HOROVODJOB_OPERATOR_{variable}")
    assert sentence in str(error.value)


def test_namespaces_are_separated_by_commas() -> None:
    assert Settings.from_environment({"HOROVODJOB_OPERATOR_NAMESPACES": " a, b,,a"}).watched_namespaces == ("a", "b")
    assert Settings.from_environment({}).watched_namespaces == ()
