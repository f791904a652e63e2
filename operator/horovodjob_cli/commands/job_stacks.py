"""`hvj job stacks`."""

import re
from typing import Annotated, Any

import typer

from horovodjob.api.constants import LABEL_ROLE, Role
from horovodjob.client.cluster import exec as pod_exec
from horovodjob.client.cluster import kube
from horovodjob.client.cluster.cluster_view import warn
from horovodjob.client.cluster.connections import side_by_side
from horovodjob.client.errors import ClientError, to_client_error
from horovodjob.client.jobs import batchai_records, other_cluster
from horovodjob.escaping import escaped_output
from horovodjob_cli.commands import command, group
from horovodjob_cli.options import Experiment, Namespace

COMMAND = ("python3", "-m", "horovodjob_trainer.watch.stacks")
RANK = re.compile(r"^--- rank (\d+), process \d+(?:, (.*))?\n", re.MULTILINE)
PODS_AT_A_TIME = 16

app = group("Where the ranks of a job are.")


@command(app, "stacks")
def stacks(
    name: Annotated[str, typer.Option("--name", "-n", "--job", "-j", help="Name of the job.", show_default=False)],
    rank: Annotated[
        list[int] | None,
        typer.Option("--rank", min=0, help="Number of a rank; can be repeated. Default: all.", show_default=False),
    ] = None,
    namespace: Namespace = None,
    experiment: Experiment = None,
) -> None:
    """Show the Python stacks of the ranks of a job, without disturbing it: ranks at the same place form a group.

    The program must use the trainer or horovodjob_trainer.hvd.
    """
    job = kube.job(name, namespace, experiment)
    pods = [pod for pod in other_cluster.pods(job) if _runs_ranks(job, pod)]
    if not pods:
        state = batchai_records.state(job.get("status", {}))
        raise ClientError(f"no pod of job {name} is running ({state}); see `hvj job show -n {name}`")
    found = side_by_side(PODS_AT_A_TIME, lambda pod: _of_pod(pod, rank or []), pods)
    errors = [each for each in found if isinstance(each, ClientError)]
    by_place: dict[tuple[str, str], list[int]] = {}
    for each in found:
        for number, state, text in each if isinstance(each, list) else ():
            by_place.setdefault((state, text), []).append(number)
    if not by_place:
        raise errors[0] if errors else ClientError(_nothing(job, rank))
    for error in errors[:1]:
        warn(f"the stacks of {len(errors)} pods are unknown: {error}")
    if missing := set(rank or []).difference(*by_place.values()):
        warn(_nothing(job, sorted(missing)))
    for (state, text), ranks in sorted(by_place.items(), key=lambda group: (len(group[1]), group[1])):
        title = _ranks(ranks) if len(ranks) == 1 else f"{_ranks(ranks)} ({len(ranks)} ranks)"
        lines = "\n".join(map(escaped_output, text.splitlines()))
        typer.echo(f"{title}{f' {escaped_output(state)}' if state else ''}, innermost frame first:\n{lines}\n")


def _runs_ranks(job: Any, pod: Any) -> bool:
    is_worker = pod["metadata"]["labels"][LABEL_ROLE] == Role.WORKER
    hosts_ranks = is_worker or job["spec"].get("launcher", {}).get("asWorker")
    return bool(hosts_ranks) and pod.get("status", {}).get("phase") == "Running"


def _of_pod(pod: Any, ranks: list[int]) -> list[tuple[int, str, str]] | ClientError:
    """Number, state and stacks of the ranks in a pod, or why they are unknown."""
    try:
        code, text = pod_exec.output(pod, (*COMMAND, *map(str, ranks)))
    except Exception as error:
        return to_client_error(error)
    if code:
        return ClientError(f"pod {pod['metadata']['name']}: {' '.join(COMMAND)} ended with exit code {code}; the image "
                        "needs horovodjob_trainer")  # fmt: skip
    parts = RANK.split(text.decode(errors="replace"))[1:]
    return [(int(rank), state or "", own.strip()) for rank, state, own in zip(*[iter(parts)] * 3, strict=True)]


def _ranks(ranks: list[int]) -> str:
    """Numbers of ranks as `rank 3` or `ranks 0-2, 5`."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and parts[-1][-1] == rank - 1:
            parts[-1][1:] = [rank]
        else:
            parts.append([rank])
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join('-'.join(map(str, part)) for part in parts)}"


def _nothing(job: Any, ranks: list[int] | None) -> str:
    """Why there are no stacks of these ranks, or of any."""
    spec, name = job["spec"], job["metadata"]["name"]
    worker = spec.get("worker") or {}
    count = worker.get("replicas", 1) * (worker.get("slots") or max(worker.get("gpus", 1), 1))
    if ranks and ranks[0] >= count and not (spec.get("elastic") or spec.get("launcherCommand")):
        return f"job {name} has no {_ranks(ranks)}: its ranks are 0 to {count - 1}"
    return (
        f"no pod of job {name} has stacks of {_ranks(ranks) if ranks else 'a rank'}: they exist while a program trains "
        "with the trainer or with horovodjob_trainer.hvd"
    )
