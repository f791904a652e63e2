"""manifests/aks/up.sh and down.sh with a fake of the Azure CLI; kubectl, helm and hvj only record their calls."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from horovodjob.api.spec import HorovodJobSpec
from support.api_client import ROOT
from support.azure_fakes import az

SCRIPTS = ROOT / "manifests" / "aks"
# Records a call, keeps the job that it reads, and finds neither a job nor settings of the metrics add-on.
RECORD = """#!/bin/sh
echo "$(basename "$0") $*" >> "$CALLS"
case "$*" in
  *--config-file*) cp "$(echo "$*" | sed 's/.*--config-file //')" "$CALLS.job" ;;
  "get hvj "* | "get configmap "*) exit 1 ;;
esac
"""
T4 = "Standard NCASv3_T4 Family"
RESTRICTED = az.subscription()["skus"]
RESTRICTED["Standard_NC4as_T4_v3"]["restrictions"] = [
    {"type": "Location", "reasonCode": "NotAvailableForSubscription", "values": ["eastus"]}
]


@dataclass
class Machine:
    """A machine with the programs on its PATH, and a subscription."""

    directory: Path

    def set_up(self, **subscription: Any) -> None:
        programs = self.directory / "bin"
        programs.mkdir(exist_ok=True)
        (programs / "az").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m support.azure_fakes.az "$@"\n')
        for name in ("kubectl", "helm", "hvj"):
            (programs / name).write_text(RECORD)
        for program in programs.iterdir():
            program.chmod(0o755)
        self.state_file.write_text(json.dumps(az.subscription(**subscription)))

    @property
    def state_file(self) -> Path:
        return self.directory / "subscription.json"

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.state_file.read_text())
        return found

    def change(self, **changes: Any) -> None:
        self.state_file.write_text(json.dumps(self.state | changes))

    def run(self, script: str, *arguments: str, answer: str = "") -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.directory / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "FAKE_AZ": str(self.state_file),
            "PYTHONPATH": str(ROOT / "tests"),
            "PYTHONPYCACHEPREFIX": sys.pycache_prefix or "",  # the fake starts a hundred times
            "CALLS": str(self.directory / "calls"),
        }
        command = [str(SCRIPTS / script), *arguments]
        return subprocess.run(
            command, env=environment, input=answer, capture_output=True, text=True, check=False, timeout=120
        )

    def refusal(self, *arguments: str) -> str:
        """The sentence with which up.sh ends before it has created anything."""
        done = self.run("up.sh", *arguments)
        assert done.returncode != 0, done.stdout
        assert self.state["groups"] == {}
        assert "Traceback" not in done.stderr
        return done.stderr.strip().splitlines()[-1]

    def calls(self) -> str:
        path = self.directory / "calls"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Machine]:
    made = Machine(tmp_path)

    def with_subscription(**subscription: Any) -> Machine:
        made.set_up(**subscription)
        return made

    return with_subscription


def test_up_leads_to_the_curves_of_a_job_again_adds_gpus_and_down_deletes_all(machine: Callable[..., Machine]) -> None:
    here = machine(build_error="trainer")
    first = here.run("up.sh")
    assert (first.returncode, "the image trainer was not built" in first.stderr) == (1, True)
    here.change(build_error=None)
    done = here.run("up.sh")
    assert done.returncode == 0, done.stderr
    state, calls = here.state, here.calls().splitlines()
    assert state["pools"] == ["system", "cpunp"]
    assert state["images"] == ["horovodjob/operator:0.1.0", "horovodjob/trainer:0.1.0"]
    for created in (["deployment", "group", "create"], ["group", "create"]):
        assert len([call for call in state["calls"] if call[: len(created)] == created]) == 1, "only what is not done"
    (deployment,) = state["deployments"].values()
    assert deployment["properties"]["parameters"]["userObjectId"] == "the-user"
    (install,) = [call for call in calls if call.startswith("helm ")]
    assert "image.registry=theregistryserver" in install
    assert [call.split()[1:3] for call in calls if call.startswith("hvj ")] == [
        ["doctor", "--workspace"],
        ["job", "create"],
        ["job", "wait"],
        ["job", "plot"],
    ]
    assert "1.25\tEUR" in done.stdout
    assert "kubectl apply --filename manifests/aks/metrics-secrets.yaml" in calls
    made = yaml.safe_load((here.directory / "calls.job").read_text())
    spec = HorovodJobSpec.model_validate(made["spec"])
    assert spec.azure_files
    assert (spec.azure_files[0].client_id, spec.service_account_name) == ("theclientid", "trainer")
    assert made["metadata"]["namespace"] == "training"
    assert "$(AZ_BATCHAI_JOB_MOUNT_ROOT)/share/digits" in spec.argv

    # The nodes of the pools that exist use the quota.
    here.change(quotas=here.state["quotas"] | {"standardDSv5Family": [12, 12], "cores": [28, 12]})
    done = here.run("up.sh", "--gpu", "--email", "a@example.com")
    assert done.returncode == 0, done.stderr
    assert here.state["pools"] == ["system", "cpunp", "gpunp"]
    assert "horovodjob/trainer-gpu:0.1.0" in here.state["images"]
    assert "manifests/aks/nvidia-device-plugin.yaml" in here.calls()

    assert here.state["budgets"] == {"horovod": ["horovod"]}
    refused = here.run("down.sh", answer="yes\n")
    assert (refused.returncode, "nothing is deleted" in refused.stderr) == (1, True)
    assert here.run("down.sh", answer="horovod\n").returncode == 0
    assert (here.state["groups"], here.state["budgets"]) == ({}, {})
    assert "there is no resource group horovod" in here.run("down.sh", "--yes").stdout


@pytest.mark.parametrize(
    ("subscription", "options", "sentence"),
    [
        ({"version": "2.77.0"}, [], "az 2.77.0 is too old: run az upgrade, to 2.78 or newer"),
        ({"signed_in": False}, [], "you are not signed in: run az login"),
        (
            {"permissions": [{"actions": ["*/read"], "notActions": []}]},
            [],
            f'--role "Contributor" --assignee <you> --scope /subscriptions/{az.SUBSCRIPTION}',
        ),
        (
            {"permissions": [{"actions": ["*"], "notActions": ["Microsoft.Authorization/*/Write"]}]},
            [],
            '--role "Role Based Access Control Administrator"',
        ),
        (
            {"providers": {"Microsoft.Monitor": "NotRegistered"}, "may_not_register": True},
            [],
            "az provider register --namespace Microsoft.Monitor",
        ),
        ({"quotas": {"cores": [10, 0], "standardDSv5Family": [100, 0]}}, [], "the quota cores of eastus has 10 free"),
        (
            {"quotas": {"cores": [100, 0], "standardDSv5Family": [100, 0], T4: [0, 0]}},
            ["--gpu"],
            f"the quota {T4} of eastus has 0 free vCPUs, and the pools need 16",
        ),
        (
            {"quotas": {"cores": [100, 0], "standardDSv5Family": [100, 0], "lowPriorityCores": [8, 0]}},
            ["--spot"],
            "the quota lowPriorityCores of eastus has 8 free vCPUs, and the pools need 16",
        ),
        ({}, ["--gpu", "--gpu-size", "Standard_NC6"], "Azure has no size Standard_NC6 in eastus"),
        ({"skus": RESTRICTED}, ["--gpu"], "eastus refuses the size Standard_NC4as_T4_v3 for your subscription"),
        ({}, ["--gpu-nodes", "many"], "--gpu-nodes many is no number of nodes"),
        ({}, ["--gpu-size"], "--gpu-size needs a value"),
        ({}, ["--gpus"], "--gpus is no option"),
    ],
)
def test_the_first_missing_right_or_quota_ends_it_with_what_to_do(
    machine: Callable[..., Machine], subscription: dict[str, Any], options: list[str], sentence: str
) -> None:
    assert sentence in machine(**subscription).refusal(*options)


def test_a_check_creates_nothing(machine: Callable[..., Machine]) -> None:
    here = machine()
    done = here.run("up.sh", "--check", "--gpu", "--spot")
    assert (done.returncode, done.stdout) == (0, "nothing is missing\n")
    assert (here.state["groups"], here.calls()) == ({}, "")


def test_down_keeps_a_group_and_a_budget_of_others(machine: Callable[..., Machine]) -> None:
    here = machine(groups={"horovod": {"tags": None}}, budgets={"horovod": ["other"]})
    refused = here.run("down.sh", "--yes")
    assert (refused.returncode, "is older than up.sh" in refused.stderr) == (1, True)
    here.change(groups={"horovod": {"tags": {"horovodjob": "up"}}})
    assert here.run("down.sh", "--yes").returncode == 0
    assert (here.state["groups"], here.state["budgets"]) == ({}, {"horovod": ["other"]})


def test_a_deployment_that_fails_ends_it(machine: Callable[..., Machine]) -> None:
    here = machine(deployment_error="(SkuNotAvailable) The requested size is not available.")
    done = here.run("up.sh")
    assert done.returncode == 1
    assert "the deployment failed; its first error is above" in done.stderr
    assert here.state["images"] == []


SECRETS = {
    "subscription": "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
    "key": "Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYg==",
    "token": "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl-_c2ln",
    "mail": "ada@example.com",
    "address": "20.31.4.5",
    "sas": "https://a.file.core.windows.net/s?sv=2025&sig=abc%2Fdef%3D",
    "thumbprint": "A94A8FE5CCB19BA61C4C0873D391E987982FBBD3",
}


def test_a_recorded_run_has_the_answers_and_no_secret(machine: Callable[..., Machine], tmp_path: Path) -> None:
    here = machine()
    answer = json.dumps(
        SECRETS | {"again": SECRETS["subscription"].upper(), "kind": "StorageV2", "cidr": "10.0.0.0/16"}
    )
    (here.directory / "bin" / "az").write_text(
        f"#!/bin/sh\necho '{answer}'\necho refused {SECRETS['mail']} >&2\nexit 3\n"
    )
    recorded = tmp_path / "recorded"
    command = [sys.executable, str(SCRIPTS / "record.py"), str(recorded), "az", "group", "show", "--name", "horovod"]
    environment = {"PATH": f"{here.directory / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stdout)["mail"]) == (3, SECRETS["mail"])  # the command sees them
    text = "".join(path.read_text() for path in recorded.iterdir())
    for secret in (*SECRETS.values(), "abc%2Fdef"):
        assert secret not in text
        assert secret.upper() not in text.upper()
    (line,) = (recorded / "calls.jsonl").read_text().splitlines()
    call = json.loads(line)
    assert (call["arguments"], call["code"]) == (["group", "show", "--name", "horovod"], 3)
    found = json.loads(call["stdout"])
    assert (found["kind"], found["cidr"], found["again"]) == ("StorageV2", "10.0.0.0/16", found["subscription"])
