"""Validation by the API server, and the messages of `kubectl apply`."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from crd.rules import PATTERNS, RULES, Pattern, Rule
from horovodjob.api.crd import NAME_RULES, custom_resource_definition
from support.api_client import Api, ApiError, Object, job

ApplyErrors = dict[str, str]


@pytest.fixture(scope="module")
def apply_errors(api: Api) -> ApplyErrors:
    """The errors of one `kubectl apply` of all cases, by the name of the job; empty for an accepted job."""
    cases: list[Object] = []
    for kind, entries in (("rule", RULES), ("pattern", PATTERNS)):
        for number, entry in enumerate(entries):
            cases += (job(f"{kind}-{number}-{quality}", **getattr(entry, quality)) for quality in ("bad", "good"))
    documents = "\n---\n".join(json.dumps(case) for case in cases)
    done = api.kubectl("apply", "--dry-run=server", "-f", "-", stdin=documents)
    taken = dict.fromkeys(re.findall(r"horovodjob\.dev/(\S+) created", done.stdout), "")
    paragraphs = re.split(r'(?m)^Error from server \(Invalid\): [^\n]*?HorovodJob\.horovodjob\.dev "', done.stderr)[1:]
    refused = {text.partition('"')[0]: text.partition("is invalid: ")[2] for text in paragraphs}
    silent = [case["metadata"]["name"] for case in cases if case["metadata"]["name"] not in taken | refused]
    assert not silent, done.stderr[-1000:]
    return taken | refused


def test_a_value_beyond_its_bound_is_rejected_with_the_field(api: Api, jobs: str) -> None:
    with pytest.raises(ApiError, match=r"spec\.worker\.replicas: .* should be greater than or equal to 1"):
        api.create(jobs, job(worker={"replicas": 0}))


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_a_value_that_does_not_match_its_pattern_is_rejected(pattern: Pattern, apply_errors: ApplyErrors) -> None:
    number = PATTERNS.index(pattern)
    assert f"spec.{pattern.field}" in apply_errors[f"pattern-{number}-bad"]
    assert "should match" in apply_errors[f"pattern-{number}-bad"]
    assert apply_errors[f"pattern-{number}-good"] == ""


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_validation_rule_has_a_message_with_the_remedy(rule: Rule, apply_errors: ApplyErrors) -> None:
    number = RULES.index(rule)
    assert rule.words in apply_errors[f"rule-{number}-bad"]
    assert apply_errors[f"rule-{number}-good"] == ""


def spec_schema() -> Object:
    version: Any = custom_resource_definition()["spec"]["versions"][0]
    schema: Object = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def patterns_of(schema: Object, path: str = "") -> Iterator[tuple[str, str]]:
    """Pattern and field of each pattern of a schema."""
    if "pattern" in schema:
        yield schema["pattern"], path.removeprefix(".")
    for name, field in schema.get("properties", {}).items():
        yield from patterns_of(field, f"{path}.{name}")
    for key, mark in (("items", "[0]"), ("additionalProperties", "{}")):
        if key in schema:
            yield from patterns_of(schema[key], f"{path}{mark}")


def test_every_pattern_of_the_schema_is_in_the_table() -> None:
    tested = {pattern.field for pattern in PATTERNS}
    found = set(patterns_of(spec_schema()))
    assert {pattern for pattern, field in found if field in tested} == {pattern for pattern, _ in found}


def test_every_rule_of_the_schema_is_in_the_table() -> None:
    def messages(schema: Object) -> Iterator[str]:
        rules = schema.get("x-kubernetes-validations", ())
        yield from (rule["message"] for rule in rules if "oldSelf" not in rule["rule"])
        for field in schema.get("properties", {}).values():
            yield from messages(field)

    assert [message for message in messages(spec_schema()) if not any(rule.words in message for rule in RULES)] == []


@pytest.mark.parametrize(("replicas", "length"), [(1, 54), (11, 53)])
def test_the_last_workers_name_may_have_63_characters(api: Api, jobs: str, replicas: int, length: int) -> None:
    worker = {"replicas": replicas, "gpus": 0}
    api.create(f"{jobs}?dryRun=All", job("n" * length, worker=worker))
    with pytest.raises(ApiError, match="<name>-worker-<last index> may have 63 characters"):
        api.create(f"{jobs}?dryRun=All", job("n" * (length + 1), worker=worker))


@pytest.mark.parametrize(("most", "length"), [({}, 51), ({"maxReplicas": 11}, 53)])
def test_the_name_of_an_elastic_job_leaves_room_for_its_last_worker_at_the_maximum_size(
    api: Api, jobs: str, most: dict[str, int], length: int
) -> None:
    api.create(f"{jobs}?dryRun=All", job("n" * length, elastic=most))
    with pytest.raises(ApiError, match=re.escape(NAME_RULES[2]["message"])):
        api.create(f"{jobs}?dryRun=All", job("n" * (length + 1), elastic=most))


def test_a_name_with_dots_is_rejected(api: Api, jobs: str) -> None:
    with pytest.raises(ApiError, match=re.escape(NAME_RULES[0]["message"])):
        api.create(jobs, job("cifar.v2"))


def test_an_unknown_field_is_an_error_of_kubectl_apply_and_pruned_without_field_validation(api: Api, jobs: str) -> None:
    done = api.kubectl("apply", "-f", "-", stdin=json.dumps(job(replicas=2)))
    assert done.returncode != 0
    assert 'unknown field "spec.replicas"' in done.stderr
    stored = api.create(f"{jobs}?dryRun=All&fieldValidation=Ignore", job(replicas=2))
    assert "replicas" not in stored["spec"]
