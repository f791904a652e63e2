"""Creates a job with one worker and waits until it succeeds: `helm test` runs this in the cluster."""

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from horovodjob.api.constants import API_VERSION, KIND, ConditionType, Phase
from horovodjob_operator.errors import OperatorError, Unavailable
from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kube.requests.authentication import login
from horovodjob_operator.kube.requests.object_paths import jobs_path

POLL_SECONDS = 1
SPEC: Mapping[str, Any] = {"command": ["true"], "worker": {"gpus": 0}, "runPolicy": {"backoffLimit": 0}}


class SelfTest:
    """A job in a namespace, and its newest status."""

    def __init__(self, client: ApiClient, namespace: str, image: str) -> None:
        self._client, self._image = client, image
        self._collection = jobs_path(namespace)
        self.namespace, self.name = namespace, ""
        self.status: dict[str, Any] = {}

    @property
    def succeeded(self) -> bool:
        """Whether the job has succeeded."""
        return self.status.get("phase") == Phase.SUCCEEDED

    @property
    def explanation(self) -> str:
        """Why the job has not succeeded, and the command that shows more."""
        ready = (one for one in self.status.get("conditions", ()) if one["type"] == ConditionType.READY)
        reason = next((one["message"] for one in ready), "no operator has reconciled it")
        where = f"kubectl --namespace {self.namespace} describe {KIND.lower()} {self.name}"
        return f"{self.namespace}/{self.name} has not succeeded: {reason}; {where} shows more"

    async def create(self) -> None:
        """Creates the job."""
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"generateName": "self-test-"}}
        created = await self._client.request("POST", self._collection, {**body, "spec": {"image": self._image, **SPEC}})
        self.name = created["metadata"]["name"]

    async def wait(self) -> None:
        """Waits until the job is finished, and prints its phases. Deletes a job that has succeeded."""
        path = f"{self._collection}/{self.name}"
        while self.status.get("phase") not in (Phase.SUCCEEDED, Phase.FAILED):
            await asyncio.sleep(POLL_SECONDS)
            await self._update(path)
        if self.succeeded:
            await self._client.request("DELETE", path)

    async def _update(self, path: str) -> None:
        before = self.status.get("phase")
        with contextlib.suppress(Unavailable):  # The next request can succeed.
            self.status = (await self._client.request("GET", path)).get("status", {})
        if (phase := self.status.get("phase")) != before:
            print(f"{self.namespace}/{self.name}: {phase}", flush=True)


async def _run(namespace: str, image: str, seconds: float) -> str:
    """Why the test has failed; empty if it has succeeded."""
    async with contextlib.aclosing(ApiClient(login(), limit=1)) as client:
        test = SelfTest(client, namespace, image)
        await test.create()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await test.wait()
    return "" if test.succeeded else test.explanation


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 if the job has succeeded, 1 with one sentence if it has not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--image", required=True)
    parser.add_argument("--timeout-seconds", type=float, default=280)
    options = parser.parse_args(arguments)
    try:
        failure = asyncio.run(_run(options.namespace, options.image, options.timeout_seconds))
    except OperatorError as error:
        failure = str(error)
    if failure:
        print(failure, file=sys.stderr)
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main())
