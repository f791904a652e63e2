"""`job wait`: a live line on a terminal, a line for each transition elsewhere, and the job's exit code."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from horovodjob.client.jobs import batchai_records
from horovodjob.client.jobs.wait_limit import WaitLimit, limited_versions
from horovodjob.client.messages import message
from horovodjob.escaping import escaped
from horovodjob_cli.display.wait_notices import WaitNotices

Object = dict[str, Any]
Show = Callable[[str], None]


def wait_for_end(job: Object, limit: WaitLimit, *, quiet: bool) -> Object:
    """The job after its end; shows the progress on standard error until then. Raises Stalled, TimedOut."""
    before = ""
    with _progress_line(quiet) as show:
        notices = WaitNotices(lambda text: None if quiet else note(text))
        for version in limited_versions(job, limit, notices.look):
            transition = transition_text(version)
            if transition != before and not quiet:
                note(transition)
            before = transition
            if batchai_records.is_finished(version):
                break
            show(progress_text(version, now=time.time()))
    for error in error_lines(version):
        message(f"{error}")
    return version


def note(text: str) -> None:
    """A line on standard error with the time of day."""
    message(f"{time.strftime('%H:%M:%S')} {text}")


def transition_text(job: Object) -> str:
    """Phase, attempt and reason of the job, without data that changes within a phase."""
    status = job.get("status", {})
    phase = status.get("phase") or "Queued"
    restarts = status.get("restarts", 0) + status.get("preemptions", 0)
    attempt = f" (attempt {status.get('attempt')})" if restarts else ""
    if phase in ("Succeeded", "Failed"):
        code = status.get("exitCode")
        return f"{phase}{attempt}" + (f", exit code {code}" if code is not None else "")
    reason = batchai_records.message(status) if phase != "Running" else None
    place = f" in queue {queue['name']}" if phase == "Queued" and (queue := status.get("queue")) else ""
    return f"{phase}{place}{attempt}" + (f": {reason}" if reason else "")


def progress_text(job: Object, *, now: float) -> str:
    """The live line: phase, workers, epoch, loss and the expected end."""
    status = job.get("status", {})
    parts = [status.get("phase") or "Queued"]
    if parts == ["Queued"] and (place := batchai_records.queue_text(status)):
        parts.append(place)
    if ready := status.get("workersReady"):
        parts.append(f"workers {ready}")
    if training := training_text(status, now=now):
        parts.append(training)
    return "  ".join(parts)


def training_text(status: Object, *, now: float) -> str:
    """Epoch, loss and the expected end of the training; empty before its first report."""
    training = status.get("training") or {}
    parts = []
    if "epoch" in training:
        parts.append(f"epoch {training['epoch']}" + (f"/{training['epochs']}" if "epochs" in training else ""))
    if percent := training.get("percent"):
        parts.append(percent)
    if "loss" in training.get("metrics", {}):
        parts.append(f"loss {training['metrics']['loss']:.4g}")
    if eta := training.get("eta"):
        parts.append(eta_text(datetime.fromisoformat(eta).timestamp(), now=now))
    return "  ".join(parts)


def eta_text(end: float, *, now: float) -> str:
    """The time of day of the expected end, and the time until then."""
    minutes = max(round((end - now) / 60), 0)
    distance = f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
    return f"ETA {time.strftime('%H:%M', time.localtime(end))} ({distance})"


def error_lines(job: Object, *, shown: str = "") -> list[str]:
    """Why a job failed: its condition and each of its errors, with the last lines of the container's log.

    The log of the container `shown` has been shown already.
    """
    status = job.get("status", {})
    if status.get("phase") != "Failed":
        return []
    reason = batchai_records.message(status) or "unknown reason"
    lines = [f"error: job {batchai_records.display_name(job)} failed: {reason}"]
    for error in status.get("errors", []):
        where = " ".join(f"{key} {error[key]}" for key in ("pod", "node", "container") if error.get(key))
        code = f", exit code {error['exitCode']}" if error.get("exitCode") is not None else ""
        words = "" if error.get("container") == shown else error.get("message") or ""
        first, *rest = words.splitlines() or [""]
        lines.append(
            f"  attempt {error['attempt']}, {error['reason']}{code}: {where}" + (f": {first}" if first else "")
        )
        lines.extend(f"    {line}" for line in rest)
    return lines


@contextlib.contextmanager
def _progress_line(quiet: bool) -> Iterator[Show]:
    if quiet or not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    with console.status("") as status:
        yield lambda text: status.update(Text(escaped(text), no_wrap=True, overflow="ellipsis"))
