"""The history of a training as rows, curves and a comparison of jobs."""

from typing import Any

import pytest

from horovodjob.training_history import Goal, best, comparison, curve, goal_of, metric_names, options, rows

TIME = "2026-11-24T12:00:00Z"


def job(name: str, losses: list[float], *args: str, **spec: Any) -> dict[str, Any]:
    """A job of a script with these losses after its epochs."""
    history = [
        {"epoch": epoch, "time": TIME, "metrics": {"loss": loss}, "learningRate": 0.1}
        for epoch, loss in enumerate(losses, 1)
    ]
    spec = {"image": "trainer:1", "script": {"path": "train.py", "args": list(args)}, **spec}
    training = {"epoch": len(losses), "metrics": {"loss": losses[-1]}, "history": history} if losses else {}
    return {"metadata": {"name": name}, "spec": spec, "status": {"training": training}}


def test_a_row_has_the_metrics_of_an_epoch_by_name_and_no_field_that_was_not_reported() -> None:
    assert rows(job("a", [0.5])) == [{"job": "a", "epoch": 1, "time": TIME, "loss": 0.5, "learningRate": 0.1}]


def test_a_job_without_history_has_no_rows() -> None:
    bare = {"metadata": {"name": "a"}, "spec": {"command": ["train"]}}
    assert (rows(bare), metric_names([bare]), best(bare, "loss")) == ([], [], None)


def test_a_metric_cannot_replace_the_number_of_its_epoch() -> None:
    odd = job("a", [0.5])
    odd["status"]["training"]["history"][0]["metrics"] |= {"epoch": 7.0}
    assert curve(odd, "loss") == [(1, 0.5)]


@pytest.mark.parametrize(
    ("metric", "goal"), [("loss", Goal.MIN), ("val_accuracy", Goal.MAX), ("AUC", Goal.MAX), ("mae", Goal.MIN)]
)
def test_the_goal_of_a_metric_is_that_of_its_name(metric: str, goal: Goal) -> None:
    assert goal_of(metric) is goal


def test_the_best_epoch_depends_on_the_goal() -> None:
    trained = job("a", [0.5, 0.2, 0.3])
    assert best(trained, "loss") == (2, 0.2)
    assert best(trained, "loss", Goal.MAX) == (1, 0.5)


def test_a_program_that_reports_no_epochs_is_compared_by_its_last_value() -> None:
    trained = job("a", [0.5])
    trained["status"]["training"] = {"metrics": {"loss": 0.4}}
    assert best(trained, "loss") == (None, 0.4)


def test_jobs_are_compared_by_the_settings_that_differ_with_the_best_first_and_those_without_a_value_last() -> None:
    jobs = [
        job("none", [], "--lr", "0.3", "--epochs", "2"),
        job("worse", [0.5], "--lr=0.1", "--epochs", "2"),
        job("better", [0.2], "--lr", "0.2", "--epochs", "2", env=[{"name": "SEED", "value": "7"}]),
    ]
    assert [(row["job"], row["best"], row["settings"]) for row in comparison(jobs, "loss")] == [
        ("better", 0.2, {"--lr": "0.2", "SEED": "7"}),
        ("worse", 0.5, {"--lr": "0.1", "SEED": None}),
        ("none", None, {"--lr": "0.3", "SEED": None}),
    ]


def test_options_have_their_values_and_a_negative_number_is_one() -> None:
    words = ["train.py", "--shift", "-0.5", "--amp", "--layers", "64", "32", "-x=1"]
    expected = {"argument 1": "train.py", "--shift": "-0.5", "--amp": "yes", "--layers": "64 32", "-x": "1"}
    assert options(words) == expected
