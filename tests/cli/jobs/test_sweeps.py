"""`hvj sweep`: trials are created, pruned and compared, and a sweep that was killed continues from its jobs."""

import json
import re
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import pytest
import yaml

from cli.cluster_state import TIME, ClusterState, condition
from cli.program import Hvj, hvj_process
from horovodjob import Client, NotFound, Trial, UsageError
from support.api_client import Object, job, wait_for

SWEEP: Object = {
    "name": "digits",
    "metric": "val_accuracy",
    "trials": 6,
    "parallel": 2,
    "pruner": {"MedianPruner": {"n_startup_trials": 1}},
    "parameters": {"lr": "log:1e-4:1e-1", "nodes": [2, 4]},
    "job": job(command=["train", "--lr=${lr}"], worker={"replicas": "${nodes}", "gpus": 0}),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a sweep."""
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump(SWEEP))
    return path


class Trials:
    """The jobs of the sweep, with statuses as the operator reports them."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster

    def names(self) -> list[str]:
        """All jobs of the namespace."""
        return sorted(each["metadata"]["name"] for each in self._cluster.api.items(self._cluster.jobs))

    def until(self, *names: str) -> None:
        """Return when exactly these jobs exist."""
        wait_for(f"the jobs {names}", lambda: self.names() == sorted(names))

    def job(self, name: str) -> Object:
        return self._cluster.api.get(f"{self._cluster.jobs}/{name}")

    def train(self, name: str, *values: float, mode: str | None = "max") -> None:
        """The job has completed epochs with these values of the metric; its program declares the mode."""
        points = [{"epoch": epoch, "value": value} for epoch, value in enumerate(values, 1)]
        epochs = [{"epoch": each["epoch"], "time": TIME, "metrics": {"val_accuracy": each["value"]}} for each in points]
        by_value = sorted(points, key=lambda point: point["value"])
        ends = {"min": by_value[0], "max": by_value[-1]} | ({"mode": mode} if mode else {})
        training = {"epoch": len(values), "progress": 0.5, "history": epochs, "extremes": {"val_accuracy": ends}}
        self._cluster.run(name, training=training)

    def succeed(self, name: str, *values: float, mode: str | None = "max") -> None:
        """The job has trained and succeeded."""
        self.train(name, *values, mode=mode)
        self._cluster.succeed(name)

    def end_terminated(self, name: str) -> None:
        """The operator has ended the job, whose termination is requested."""
        wait_for(f"the termination of {name}", lambda: self.job(name)["spec"].get("runPolicy", {}).get("terminate"))
        self._cluster.fail(name, conditions=[condition("Failed", "Terminated", "a user terminated the job")])


@pytest.fixture
def trials(cluster: ClusterState) -> Trials:
    """The jobs of the test's sweep."""
    return Trials(cluster)


def error_of(*arguments: str) -> str:
    """The error of a command line that would follow jobs without end if it did not fail."""
    with hvj_process(*arguments) as process:
        _, stderr = process.communicate()
    assert process.returncode in (1, 2)
    return str(stderr)


def test_python_runs_a_sweep_and_continues_it_by_its_name(trials: Trials) -> None:
    client, lines, ends = Client(), SimpleQueue[str](), SimpleQueue[Trial]()

    def start(what: Object | str, number: int) -> None:
        Thread(target=lambda: ends.put(client.sweep(what, trials=number, progress=lines.put)), daemon=True).start()

    start(SWEEP, 2)
    trials.until("digits-0", "digits-1")
    trials.succeed("digits-0", 0.5)
    trials.succeed("digits-1", 0.9)
    best = ends.get(timeout=120)
    assert (best.number, best.job, best.state, best.value) == (1, "digits-1", "complete", 0.9)
    start("digits", 3)
    trials.until("digits-0", "digits-1", "digits-2")
    trials.succeed("digits-2", 0.95)
    assert ends.get(timeout=120).number == 2
    assert [(each.number, each.value) for each in client.trials("digits")] == [(0, 0.5), (1, 0.9), (2, 0.95)]
    shown = [lines.get_nowait() for _ in range(lines.qsize())]
    assert "trial 2: val_accuracy 0.95 (the best so far)" in shown
    with pytest.raises(NotFound, match="sweep none has no job"):
        client.sweep("none")
    with pytest.raises(UsageError, match="the sweep: metric: is missing"):
        client.sweep({"name": "x"})


def test_a_sweep_that_was_killed_goes_on_without_its_file_in_two_programs_and_finds_the_best_trial(
    hvj: Hvj, trials: Trials, file: Path
) -> None:
    with hvj_process("sweep", "-f", str(file)) as killed:
        trials.until("digits-0", "digits-1")
        trials.succeed("digits-0", 0.5, 0.9)
        trials.until("digits-0", "digits-1", "digits-2")
        trials.train("digits-1", 0.1)
        trials.end_terminated("digits-1")
        trials.until("digits-0", "digits-1", "digits-2", "digits-3")
        killed.kill()
    trials.succeed("digits-2", 0.7, 0.95)
    with hvj_process("sweep", "resume", "digits") as one, hvj_process("sweep", "resume", "digits") as other:
        six = [f"digits-{number}" for number in range(6)]
        trials.until(*six[:5])
        trials.succeed("digits-3", 0.8)
        trials.until(*six)
        trials.succeed("digits-4", 0.85)
        trials.succeed("digits-5", 0.75)
        ends = [json.loads(process.communicate()[0]) for process in (one, other)]
    assert [end["trial"] for end in ends] == [2, 2]

    assert trials.names() == six
    shown = hvj("sweep", "show", "digits").data
    assert [(each["trial"], each["state"], each["value"]) for each in shown] == [
        *((0, "complete", 0.9), (1, "pruned", 0.1), (2, "complete", 0.95)),
        *((3, "complete", 0.8), (4, "complete", 0.85), (5, "complete", 0.75)),
    ]
    best: dict[str, Any] = hvj("sweep", "best", "digits").data
    assert (best["job"], best["epoch"]) == ("digits-2", 2)
    spec = trials.job("digits-2")["spec"]
    assert spec["command"] == ["train", f"--lr={best['parameters']['lr']}"]
    assert spec["worker"]["replicas"] == best["parameters"]["nodes"]


def test_failures_in_a_row_end_a_sweep_and_another_search_cannot_continue_it(
    trials: Trials, cluster: ClusterState, file: Path
) -> None:
    with hvj_process("sweep", "-f", str(file), "--trials", "3") as process:
        trials.until("digits-0", "digits-1")
        for number in range(3):
            trials.until(*(f"digits-{each}" for each in range(min(number + 2, 3))))
            cluster.fail(f"digits-{number}", conditions=[condition("Failed", "RankFailed", "rank 1 ended")])
        _, stderr = process.communicate()
    assert process.returncode == 1
    assert stderr.splitlines()[-1] == (
        "error: 3 trials in a row failed, the last is job digits-2: rank 1 ended; no more are created: correct the job "
        "and run the sweep again, which continues it"
    )
    file.write_text(yaml.safe_dump({**SWEEP, "parameters": {"lr": "log:1e-4:1", "nodes": [2, 4]}}))
    assert "with another parameter lr: add --new to try all again" in error_of("sweep", "-f", str(file))


def test_trials_of_other_code_are_never_compared_and_asked_for(hvj: Hvj, trials: Trials, file: Path) -> None:
    with hvj_process("sweep", "-f", str(file), "--trials", "1", "--parallel", "1") as process:
        trials.until("digits-0")
        trials.succeed("digits-0", 0.99)
        first, *others = process.communicate()[1].splitlines()
    assert (
        "sweep digits searches by val_accuracy, minimized or maximized as its programs declare "
        "(--goal min or max to choose): 1 trial of lr, nodes" in first
    )
    declared = "sweep digits maximizes val_accuracy (as its programs declare; --goal min for the opposite)"
    assert any(line.endswith(declared) for line in others), others
    changed = {**SWEEP, "job": job(command=["other", "--lr=${lr}"], worker={"replicas": "${nodes}", "gpus": 0})}
    file.write_text(yaml.safe_dump(changed))
    start = ("sweep", "-f", str(file), "--trials", "1", "--parallel", "1")
    assert "with another spec.command: add --new to try all again, apart from its trials" in error_of(*start)
    with hvj_process(*start, "--new") as process:
        trials.until("digits-0", "digits-1")
        trials.succeed("digits-1", 0.5)
        stdout, stderr = process.communicate()
    assert (json.loads(stdout)["job"], "have another setup: not compared" in stderr) == ("digits-1", True), stderr
    with hvj_process(*start[:3], "--trials", "2") as process:  # continues the new ones without being asked again
        trials.until("digits-0", "digits-1", "digits-2")
        trials.succeed("digits-2", 0.4)
        assert json.loads(process.communicate()[0])["job"] == "digits-1"
    assert hvj("sweep", "best", "digits").data["job"] == "digits-1"
    shown = hvj("sweep", "show", "digits", "-o", "table")
    setups = [each["setup"] for each in hvj("sweep", "show", "digits").data]
    assert (setups[0] != setups[1], setups[1] == setups[2], shown.stdout.split()[-1]) == (True, True, setups[2])
    assert re.search(f"setup {setups[0]}, maximizes .*: 1 complete; the best is trial 0", shown.stderr)


def end_at_first_report(trials: Trials, file: Path, *options: str, second: str | None = "", mode: str | None) -> str:
    """The last line of a sweep that ends when its trials have reported; both succeed afterwards."""
    with hvj_process("sweep", "-f", str(file), "--trials", "2", *options) as process:
        trials.until("digits-0", "digits-1")
        if second == "":
            trials.train("digits-0", 0.9, mode=mode)
        else:
            trials.succeed("digits-0", 0.9)
            trials.train("digits-1", 0.5, mode=second)
        stderr = process.communicate()[1]
    assert process.returncode == 1, stderr
    trials.succeed("digits-0", 0.9, mode=mode)
    trials.succeed("digits-1", 0.5, mode=mode if second == "" else second)
    return str(stderr.splitlines()[-1])


def test_a_wrong_metric_is_seen_at_the_first_report_and_corrected(hvj: Hvj, trials: Trials, file: Path) -> None:
    line = end_at_first_report(trials, file, "--metric", "val_acc", mode="max")
    assert line.startswith("error: trial 0 reports no val_acc, but val_accuracy; `hvj sweep resume digits")
    assert "--metric val_accuracy` continues" in line
    assert hvj("sweep", "best", "digits", "--metric", "val_accuracy").data["value"] == 0.9
    assert hvj("sweep", "resume", "digits", "--metric", "val_accuracy").data["job"] == "digits-0"


def test_a_search_that_needs_a_direction_ends_at_the_first_report_without_one_and_goes_on_with_a_goal(
    hvj: Hvj, trials: Trials, file: Path
) -> None:
    line = end_at_first_report(trials, file, mode=None)
    assert "the program of trial 0 does not declare whether a low or a high val_accuracy is best" in line
    assert "--goal min` or `--goal max` continues, and its jobs are kept" in line
    resumed = hvj("sweep", "resume", "digits", "--goal", "min")
    assert resumed.data["job"] == "digits-1"
    assert "sweep digits minimizes val_accuracy: 2 trials" in resumed.stderr


def test_a_trial_that_declares_the_opposite_of_others_ends_a_sweep_unless_the_user_has_chosen(
    hvj: Hvj, trials: Trials, file: Path
) -> None:
    line = end_at_first_report(trials, file, mode="max", second="min")
    assert "error: trial 1 declares min for val_accuracy, and the sweep maximizes val_accuracy" in line
    assert hvj("sweep", "best", "digits").code == 1
    assert hvj("sweep", "resume", "digits", "--goal", "max").data["job"] == "digits-0"
