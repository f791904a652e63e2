"""What tests ask of an engine, and the processes that run it."""

from __future__ import annotations

import functools
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

from gitops.git_repository import Repository
from localcluster.binaries.cache import Binaries
from localcluster.progress import Progress
from localcluster.settings import cache_directory
from support.api_client import JOBS, Api, Object, is_served, wait_for
from support.control_plane.operator_control_plane import OperatorControlPlane
from support.job_driver import Job, timestamp

HEALTHY, PROGRESSING, FAILED = "healthy", "progressing", "failed"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/horovodjobs.horovodjob.dev"
DEPLOYMENT = "/apis/apps/v1/namespaces/horovodjob-system/deployments/horovodjob-operator"
BUDGET = "/apis/policy/v1/namespaces/horovodjob-system/poddisruptionbudgets/horovodjob-operator"
NEW_DESCRIPTION = "Phase of the job, of the next release."


class EngineControlPlane(OperatorControlPlane):
    """A control plane beside which an engine runs, as a process for each of its controllers."""

    def run(self, name: str, *command: str, **variables: str) -> None:
        """Starts a process that ends with the control plane."""
        work = self.directory / name
        work.mkdir()
        settings = {"KUBECONFIG": str(self.kubeconfig), "HOME": str(work), "TMPDIR": str(work), **variables}
        self._run(name, ["env", *(f"{key}={value}" for key, value in settings.items()), *command])

    def wait_listening(self, address: str, port: int) -> None:
        """Waits until a process accepts connections."""

        def connects() -> bool:
            self.assert_running()
            with socket.socket() as client:
                return client.connect_ex((address, port)) == 0

        wait_for(f"a process to listen on {address}:{port}", connects)

    def assert_running(self) -> None:
        """Raises ClusterError with the last lines of the log of a process that has ended."""
        self._explain()


class Delivery(ABC):
    """A folder of a repository that an engine applies."""

    path: str
    """Of the Application or the Kustomization."""

    def __init__(self, api: Api, repository: Repository, name: str) -> None:
        self.api, self.repository, self.name = api, repository, name

    @property
    def namespace(self) -> str:
        """That of the jobs, after which the Application or the Kustomization is named."""
        return self.name.removesuffix("-jobs")

    @abstractmethod
    def publish(self) -> None:
        """Announces the repository's last commit to the engine."""

    @abstractmethod
    def applied_revision(self) -> str:
        """The commit that was applied last without an error."""

    @abstractmethod
    def health(self) -> str:
        """The health that the engine reports for the objects of the folder."""

    @abstractmethod
    def message(self) -> str:
        """What the engine says of its last attempt."""

    def push(self, message: str = "change") -> None:
        """Commits all files and announces the commit."""
        self.repository.commit(message)
        self.publish()

    def deploy(self, message: str = "change") -> None:
        """Pushes, and waits until the engine has applied the commit."""
        self.push(message)
        self.wait_applied()

    def wait_applied(self) -> None:
        """Waits until the engine has applied the last commit."""
        self._wait("the last commit to be applied", lambda: self.applied_revision() == self.repository.revision)

    def wait_health(self, wanted: str) -> None:
        """Waits for this health."""
        self._wait(f"health {wanted}", lambda: self.health() == wanted)

    def wait_message(self, text: str) -> None:
        """Waits until the engine says this."""
        self._wait(f"the message {text!r}", lambda: text in self.message())

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        try:
            wait_for(f"{what} of {self.name}", condition)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {self.get()['status']}") from error

    def get(self) -> Object:
        return self.api.get(self.path)


class Engine(ABC):
    """Argo CD or Flux, running."""

    name: str

    def __init__(self, control_plane: EngineControlPlane, api: Api, directory: Path) -> None:
        self.control_plane, self.api, self.directory = control_plane, api, directory

    @abstractmethod
    def start(self) -> None:
        """Installs the definitions and starts the controllers."""

    @abstractmethod
    def bootstrap(self, repository: Repository) -> None:
        """Applies the documented cluster folder, with the addresses of the tests instead of the example's."""

    @abstractmethod
    def release_operator(self) -> None:
        """Lets the operator's release, and its Deployment, become ready."""

    @abstractmethod
    def remove_definition(self, directory: Path) -> None:
        """Removes the definition of the jobs from Git, and waits until the engine has applied that."""

    @abstractmethod
    def upgrade_operator(self) -> None:
        """Releases a chart with another version and another definition, and waits until both are applied."""

    @abstractmethod
    def jobs_of_bootstrap(self, repository: Repository) -> Delivery:
        """The delivery `training-jobs` of the cluster folder."""

    @abstractmethod
    def deliver(self, repository: Repository, name: str, **changes: Any) -> Delivery:
        """Applies the jobs of a repository as manifests/gitops does, with changes of the spec."""

    def apply(self, *objects: Object, files: Iterable[Path] = ()) -> None:
        """Applies objects and files as an administrator."""
        text = "\n---\n".join([yaml.safe_dump_all(objects), *(file.read_text() for file in files)])
        done = self.api.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
        assert done.returncode == 0, done.stderr

    def make_operator_ready(self) -> None:
        """Acts as the controllers of Deployments and of PodDisruptionBudgets."""
        deployment = wait_for("the operator's Deployment", lambda: self.api.find(DEPLOYMENT))
        generation, replicas = deployment["metadata"]["generation"], deployment["spec"]["replicas"]
        reasons = {"Available": "MinimumReplicasAvailable", "Progressing": "NewReplicaSetAvailable"}
        conditions = [{"type": kind, "status": "True", "reason": reason} for kind, reason in reasons.items()]
        counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), replicas)
        status = {"observedGeneration": generation, "conditions": conditions, **counts}
        self.api.patch(f"{DEPLOYMENT}/status", {"status": status})
        budget = wait_for("the operator's PodDisruptionBudget", lambda: self.api.find(BUDGET))
        sufficient = {"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods", "message": ""}
        sufficient["lastTransitionTime"] = timestamp()
        counts = {"disruptionsAllowed": 1, "currentHealthy": replicas, "desiredHealthy": 1, "expectedPods": replicas}
        status = {"observedGeneration": budget["metadata"]["generation"], "conditions": [sufficient], **counts}
        self.api.patch(f"{BUDGET}/status", {"status": status})

    def serve(self, *resources: str) -> None:
        """Waits until these resources can be read."""
        for resource in resources:
            wait_for(resource, functools.partial(is_served, self.api, f"/apis/{resource}"))


def edit_chart(directory: Path) -> None:
    """Makes the next version of the operator's chart, with another description in the definition of the jobs."""
    for file, old, new in (
        ("Chart.yaml", "version: 0.1.0", "version: 0.1.1"),
        ("files/crd.yaml", "Phase of the job.", NEW_DESCRIPTION),
    ):
        content = (directory / file).read_text()
        assert old in content
        (directory / file).write_text(content.replace(old, new))


def namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def kept_file(binary: str, name: str) -> Path:
    """A file that is kept beside a binary of the engines, which is built if it is missing."""
    binaries = Binaries(cache_directory())
    binaries.ensure(Progress(), (binary,))
    return binaries.file(binary, name)


def runs(api: Api, namespace: str, name: str = "") -> list[Job]:
    """The jobs of a namespace, or those with this name before their hash, the earliest first."""
    found = api.get(JOBS.format(namespace))["items"]
    found.sort(key=lambda one: str(one["metadata"]["creationTimestamp"]))
    made = [Job(api, namespace, one["metadata"]["name"], one["metadata"]["uid"]) for one in found]
    return [job for job in made if name in ("", job.name.partition("-")[0])]


def jobs(api: Api, namespace: str) -> dict[str, Job]:
    """The last job of each name before the hash."""
    return {job.name.partition("-")[0]: job for job in runs(api, namespace)}
