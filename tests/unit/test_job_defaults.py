"""Defaults of all jobs, set by the administrator of a cluster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovodjob.api.pod_fields import LocalObjectReference, Toleration
from horovodjob.api.spec import HorovodJobSpec
from horovodjob_operator.domain.job_defaults import JobDefaults, parse_job_defaults
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
    job = DEFAULTS.apply_to(spec(image="", azureFiles=[SHARE]))
    assert job.image == "default:1"
    assert job.node_selector == {"pool": "gpu", "zone": "1"}
    assert [toleration.key for toleration in job.tolerations or ()] == ["sku", "team"]
    assert (job.priority_class_name, job.shm_size) == ("training", "1Gi")
    assert [secret.name for secret in job.image_pull_secrets or ()] == ["registry"]
    assert [share.mount_options for share in job.azure_files or ()] == [("actimeo=1", "nobrl")]


def test_fields_of_the_job_override_the_defaults() -> None:
    own = spec(
        image="own:1",
        nodeSelector={"zone": "2"},
        tolerations=[{"key": "sku", "value": "cpu", "effect": "NoSchedule"}],
        priorityClassName="urgent",
        imagePullSecrets=[{"name": "mine"}],
        shmSize="2Gi",
        azureFiles=[{**SHARE, "mountOptions": ["brl", "vers=3.1.1"]}, {**SHARE, "name": "nfs", "protocol": "nfs"}],
    )
    job = DEFAULTS.apply_to(own)
    assert job.image == "own:1"
    assert job.node_selector == {"pool": "gpu", "zone": "2"}
    assert [(each.key, each.value) for each in job.tolerations or ()] == [("sku", "cpu"), ("team", None)]
    assert (job.priority_class_name, job.shm_size) == ("urgent", "2Gi")
    assert [secret.name for secret in job.image_pull_secrets or ()] == ["mine"]
    smb, nfs = (share.mount_options for share in job.azure_files or ())
    assert (smb, nfs) == (("actimeo=1", "brl", "vers=3.1.1"), None)


def test_workers_with_gpus_get_the_image_for_them() -> None:
    both = parse_job_defaults('{"image": "cpu:1", "gpuImage": "gpu:1"}')

    def images(defaults: JobDefaults) -> list[str]:
        return [defaults.apply_to(spec(image="", worker={"gpus": gpus})).image for gpus in (0, 1, 8)]

    assert images(both) == ["cpu:1", "gpu:1", "gpu:1"]
    # A namespace with one image has it for all its jobs, as before there was another.
    assert images(parse_job_defaults('{"image": "team:1"}').completed_by(both)) == ["team:1"] * 3
    assert images(parse_job_defaults("{}").completed_by(both)) == ["cpu:1", "gpu:1", "gpu:1"]


def test_without_defaults_a_job_is_unchanged() -> None:
    job = spec(azureFiles=[SHARE], nodeSelector={"zone": "2"})
    assert parse_job_defaults("").apply_to(job) == job


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("JOB_DEFAULTS", '{"toleration": []}', "toleration: Extra inputs are not permitted"),
        ("JOB_DEFAULTS", "[]", "the object: Input should be an object"),
        ("PREFLIGHT", "1", "not a JSON object; it must name the storage accounts of each namespace, such as"),
        ("PREFLIGHT", '{"team-a": "myaccount"}', '"myaccount" of namespace team-a is not a list of storage accounts'),
        ("PREFLIGHT", '{"team-a": ["https://x"]}', "of namespace team-a is not a list of storage accounts"),
        ("PREFLIGHT", '{"Team": []}', "'Team' is not the name of a namespace"),
        ("NAMESPACES", "a,B", "names 'B', which is not the name of a namespace"),
    ],
)
def test_an_invalid_setting_is_reported_by_name(variable: str, value: str, sentence: str) -> None:
    with pytest.raises(ValueError, match="HOROVODJOB_OPERATOR_") as error:
        Settings.from_environment({f"HOROVODJOB_OPERATOR_{variable}": value})
    assert str(error.value).startswith(f"HOROVODJOB_OPERATOR_{variable}")
    assert sentence in str(error.value)


def test_accounts_for_the_preflight_check_are_hosts_by_namespace() -> None:
    text = '{"team-a": ["acca", "accb.file.core.chinacloudapi.cn"], "team-b": []}'
    assert Settings.from_environment({"HOROVODJOB_OPERATOR_PREFLIGHT": text}).preflight_hosts == {
        "team-a": {"acca.file.core.windows.net", "accb.file.core.chinacloudapi.cn"},
        "team-b": frozenset(),
    }
    assert Settings.from_environment({}).preflight_hosts == {}


def test_namespaces_are_separated_by_commas_or_selected_and_not_both() -> None:
    assert Settings.from_environment({"HOROVODJOB_OPERATOR_NAMESPACES": " a, b,,a"}).watched_namespaces == ("a", "b")
    assert Settings.from_environment({}).watched_namespaces == ()
    environment = {"HOROVODJOB_OPERATOR_NAMESPACE_SELECTOR": "a", "HOROVODJOB_OPERATOR_NAMESPACES": "b"}
    with pytest.raises(ValueError, match="are both set"):
        Settings.from_environment(environment)


NAMES = st.sampled_from(["a", "b", "c"])
TOLERATIONS = st.builds(
    Toleration, key=NAMES, operator=st.just("Exists"), effect=st.sampled_from(["NoSchedule", "NoExecute"])
)
ANY_DEFAULTS = st.builds(
    JobDefaults,
    image=st.none() | NAMES,
    node_selector=st.dictionaries(NAMES, NAMES),
    tolerations=st.lists(TOLERATIONS, unique_by=lambda each: (each.key, each.effect)).map(tuple),
    priority_class_name=st.none() | NAMES,
    queue=st.none() | NAMES,
    image_pull_secrets=st.lists(st.builds(LocalObjectReference, name=NAMES)).map(tuple),
    shm_size=st.none() | st.sampled_from(["1Gi", "2Gi"]),
    mount_options=st.lists(st.sampled_from(["actimeo=1", "actimeo=2", "nobrl"]), unique_by=lambda each: each[:3]).map(
        tuple
    ),
)


@given(ANY_DEFAULTS, ANY_DEFAULTS)
def test_defaults_of_a_namespace_take_precedence_over_those_of_the_operator(
    namespace: JobDefaults, operator: JobDefaults
) -> None:
    for job in (spec(azureFiles=[SHARE]), spec(image="", nodeSelector={"a": "job"}, shmSize="3Gi")):
        assert namespace.completed_by(operator).apply_to(job) == operator.apply_to(namespace.apply_to(job))
    assert namespace.completed_by(operator).queue == (namespace.queue or operator.queue)


@pytest.mark.parametrize("selector", ["!a", "a==b,c!=d", "x.io/a in (b, c)", "a notin (b),c", "a="])
def test_a_label_selector_is_accepted_as_kubectl_accepts_it(selector: str) -> None:
    environment = {"HOROVODJOB_OPERATOR_NAMESPACE_SELECTOR": selector}
    assert Settings.from_environment(environment).namespace_selector == selector


@pytest.mark.parametrize("selector", ["a b", "a=b c", "=a", "a in b", "a,", "a=b=c", "-a"])
def test_a_malformed_label_selector_is_reported_with_an_example(selector: str) -> None:
    with pytest.raises(ValueError, match="it must be a label selector, such as team=a"):
        Settings.from_environment({"HOROVODJOB_OPERATOR_NAMESPACE_SELECTOR": selector})
