"""The process of an experiment tracker. It reads messages of the trainer from a socket, which is its standard input.

It ends a few seconds after the trainer, however the trainer ends. Imports neither TensorFlow nor Horovod.
"""

import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Empty, Full, Queue
from typing import Any, Protocol

CLOSE_SECONDS = 10.0
RETRY_SECONDS = 60.0
MESSAGE_BYTES = 1 << 20
MOST_MESSAGES = 10_000  # that wait while the tracker does not respond; later ones are lost
REASON_CHARACTERS = 200
SECRETS = re.compile("TOKEN|PASSWORD|SECRET|KEY")


Messages = Queue[dict[str, Any]]


class TrackedRun(Protocol):
    """A run of a tracker."""

    def write(self, seconds: float, step: int, values: Mapping[str, float]) -> None:
        """Add values of a step, which it had at this time in seconds since 1970."""

    def close(self, done: bool) -> None:
        """End the run as complete or as interrupted."""


class MlflowRun:
    """A run of MLflow. The server and its credentials are in variables of MLflow such as MLFLOW_TRACKING_URI."""

    def __init__(self, start: Mapping[str, Any]) -> None:
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient

        self.metric, self.client = Metric, MlflowClient()
        found = self.client.get_experiment_by_name(start["target"])
        experiment = found.experiment_id if found else self.client.create_experiment(start["target"])
        runs = self.client.search_runs([experiment], f"tags.horovodjob_run = '{start['run']}'", max_results=1)
        if runs:
            self.id = runs[0].info.run_id
            self.client.update_run(self.id, status="RUNNING")
            return
        tags = {"horovodjob_run": start["run"]}
        self.id = self.client.create_run(experiment, tags=tags, run_name=start["name"] or None).info.run_id
        self.client.log_batch(self.id, params=[Param(name, str(value)) for name, value in start["settings"].items()])

    def write(self, seconds: float, step: int, values: Mapping[str, float]) -> None:
        now = int(seconds * 1000)
        self.client.log_batch(self.id, [self.metric(name, value, now, step) for name, value in values.items()])

    def close(self, done: bool) -> None:
        self.client.set_terminated(self.id, "FINISHED" if done else "KILLED")


class WandbRun:
    """A run of Weights & Biases. Its key and its mode are in variables such as WANDB_API_KEY and WANDB_MODE."""

    def __init__(self, start: Mapping[str, Any]) -> None:
        import wandb

        self.run = wandb.init(
            project=start["target"],
            id=start["run"],
            name=start["name"] or None,
            config=dict(start["settings"]),
            resume="allow",
            settings=wandb.Settings(console="off", silent=True),
        )
        # W&B's own step number cannot decrease, and that of a resumed run does: it repeats steps.
        self.run.define_metric("*", step_metric="step")

    def write(self, seconds: float, step: int, values: Mapping[str, float]) -> None:
        self.run.log({"step": step, **values})

    def close(self, done: bool) -> None:
        self.run.finish(exit_code=0 if done else 1)


CONNECTORS: dict[str, tuple[str, Callable[[Mapping[str, Any]], TrackedRun]]] = {
    "mlflow": ("MLflow", MlflowRun),
    "wandb": ("Weights & Biases", WandbRun),
}


def track(messages: Messages, log: Callable[[str], None]) -> None:
    """Give the messages to the tracker until the last of them. After an error, it tries again."""
    start = messages.get()
    name, connect = CONNECTORS[start["kind"]]
    run: TrackedRun | None = None
    message, is_logged = messages.get(), False
    while True:
        try:
            run = run or connect(start)
            if "done" in message:
                run.close(message["done"])
                return
            run.write(message["time"], message["step"], message["values"])
        except ImportError as error:
            log(f"Training continues without {name}: {error}; install the package in the image")
            return
        except Exception as error:  # the packages raise many types
            if not is_logged:
                is_logged = True
                log(f"Training continues without {name} until it responds: {_reason(error)}")
            if "done" in message or _ends_within(messages, RETRY_SECONDS):
                return
            continue
        message = messages.get()


def _ends_within(messages: Messages, seconds: float) -> bool:
    """Wait so long. Returns true at once when the trainer has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with messages.mutex:
            if messages.queue and "done" in messages.queue[-1]:
                return True
        time.sleep(0.2)
    return False


def _reason(error: Exception) -> str:
    """The error in one line, without passwords and keys."""
    text = " ".join(str(error).split()) or type(error).__name__
    for name, value in os.environ.items():
        if value and SECRETS.search(name):
            text = text.replace(value, "***")
    return re.sub(r"//[^/@\s]+@", "//***@", text)[:REASON_CHARACTERS]


def main() -> None:
    """Read the messages, and end this process and its children when the trainer has ended."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the packages print advertisements
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=os.dup(0))
    messages: Messages = Queue(MOST_MESSAGES)

    def log(text: str) -> None:
        print(text, file=output, flush=True)

    worker = threading.Thread(target=track, args=(messages, log), daemon=True)
    worker.start()
    message: dict[str, Any] = {}
    while content := connection.recv(MESSAGE_BYTES):
        message = json.loads(content)
        _put(messages, message)
    if "done" not in message:  # the trainer was killed
        _put(messages, {"done": False})
    worker.join(CLOSE_SECONDS)
    if worker.is_alive():
        log("A tracker did not respond at the end of the training: its last values can be missing")
    os.killpg(0, signal.SIGKILL)


def _put(messages: Messages, message: dict[str, Any]) -> None:
    try:
        messages.put_nowait(message)
    except Full:
        if "done" in message:
            with suppress(Empty):
                messages.get_nowait()
            messages.put(message)


if __name__ == "__main__":
    main()
    sys.exit()
