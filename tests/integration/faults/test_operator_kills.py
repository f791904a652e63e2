"""The operator is killed before and after each of its writes: the job ends as in an undisturbed run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.faults.operator_kills import Case, Lanes, Write, parallel_lanes
from integration.scenarios import SCENARIOS, submit_for
from support.api_client import Api
from support.job_driver import Job
from support.operator_process import Operator


@pytest.fixture(scope="module")
def lanes(
    api: Api, operator_access: Path, operator_process: Operator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lanes]:
    with parallel_lanes(api, operator_access, operator_process, tmp_path_factory.mktemp("kills")) as started:
        yield started


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_job_ends_as_usual_wherever_the_operator_is_killed(lanes: Lanes, scenario: str) -> None:
    def submit(api: Api, namespace: str, name: str) -> Job:
        return submit_for(api, namespace, scenario, name)

    case = Case(submit, SCENARIOS[scenario])
    undisturbed = lanes.run(case)
    # Of the other writes, and of the events, each has its kills in a job that succeeds.
    writes = undisturbed.writes
    events: tuple[str, ...] = ("events Started", "events Succeeded")
    if scenario != "succeeds":
        begin, events = writes.index(Write("PATCH horovodjobs Running")), ()
        writes = [*(write for write in writes[:begin] if " podgroups " in write.text), *writes[begin:]]
    writes = [write for write in writes if " events " not in write.text or write.text.endswith(events)]
    if differences := lanes.differences(case, undisturbed, writes):
        pytest.fail("\n".join(differences), pytrace=False)
