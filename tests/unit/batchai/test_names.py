"""Names of Batch AI as names in Kubernetes."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horovodjob.batchai.names import label_value, resource_name

LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("cifar_distributed", "cifar-distributed"), ("My_Job-1", "my-job-1"), ("_a_", "a"), ("job", "job")],
)
def test_a_name_keeps_what_kubernetes_allows(name: str, expected: str) -> None:
    assert resource_name(name) == expected


@settings(max_examples=40)
@given(st.from_regex(r"[-\w]{0,30}[A-Za-z0-9][-\w]{0,33}", fullmatch=True), st.sampled_from([51, 63]))
def test_every_name_leaves_room_for_the_index_of_a_worker(name: str, length: int) -> None:
    result = resource_name(name, length)
    assert re.fullmatch(LABEL, result)
    assert len(result) <= length
    assert len(f"{resource_name(name)}-worker-9999") <= 63


def test_two_long_names_remain_different() -> None:
    names = ["experiment_" * 6 + end for end in ("a", "b")]
    assert len({resource_name(name) for name in names}) == 2


def test_an_experiment_keeps_its_name_if_it_is_a_valid_label_value() -> None:
    assert label_value("Cifar_10") == "Cifar_10"
    assert label_value("_Cifar_") == "cifar"
