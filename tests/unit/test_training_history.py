"""The history of a training as rows, curves and a comparison of jobs."""

import json
from typing import Any

from horovodjob.api.constants import ANNOTATION_SWEEP
from horovodjob.training_history import (
    Goal,
    best,
    comparison,
    curve,
    declared_goal,
    ends,
    metric_names,
    options,
    rows,
)

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
    trained = job("a", [0.5])
    assert rows(trained) == [{"job": "a", "epoch": 1, "time": TIME, "loss": 0.5, "learningRate": 0.1}]
    trained["status"]["training"]["history"][0]["metrics"] |= {"epoch": 7.0}
    assert curve(trained, "loss") == [(1, 0.5)], "a metric cannot replace the number of its epoch"
    bare = {"metadata": {"name": "a"}, "spec": {"command": ["train"]}}
    assert (rows(bare), metric_names([bare]), ends(bare, "loss")) == ([], [], None)


def test_the_best_epoch_depends_on_the_goal_and_is_that_of_all_epochs_and_not_of_the_thinned_history() -> None:
    trained = job("a", [0.5, 0.2, 0.3])
    assert [best(trained, "loss", goal) for goal in (Goal.MIN, Goal.MAX)] == [(2, 0.2), (1, 0.5)]
    extremes = {"min": {"epoch": 50, "value": 0.1}, "max": {"epoch": 1, "value": 0.5}}
    trained["status"]["training"]["extremes"] = {"loss": extremes}
    assert ends(trained, "loss") == ((50, 0.1), (1, 0.5))
    trained["status"]["training"] = {"metrics": {"loss": 0.4}}
    assert best(trained, "loss", Goal.MIN) == (None, 0.4), "the last value of a program that reports no epochs"


def declaring(name: str, mode: str | None, metric: str = "dice") -> dict[str, Any]:
    """A job whose program has this metric, and declares which end of it is the best."""
    value = {"epoch": 1, "value": 0.5}
    extremes = {metric: {"min": value, "max": value} | ({"mode": mode} if mode else {})}
    training = {"progress": 1, "extremes": extremes}
    return {"metadata": {"name": name}, "spec": {"command": ["train"]}, "status": {"training": training}}


def test_the_goal_of_a_metric_is_what_the_programs_declare_and_is_never_guessed_from_its_name() -> None:
    assert declared_goal([declaring("a", "max"), declaring("b", None)], "dice") is Goal.MAX
    assert declared_goal([declaring("a", "min", "giou_loss")], "giou_loss") is Goal.MIN
    assert declared_goal([declaring("a", "max"), declaring("b", "min")], "dice") is None, "they disagree"
    assert declared_goal([declaring("a", None, "val_accuracy")], "val_accuracy") is None
    assert declared_goal([declaring("a", None, "val_loss")], "val_loss") is Goal.MIN, "Keras minimizes it"
    assert declared_goal([declaring("a", "max", "loss")], "loss") is Goal.MAX, "the program says otherwise"


def test_the_direction_that_a_user_gives_a_sweep_is_declared_for_its_jobs() -> None:
    trial = declaring("a", None, "score")
    definition = json.dumps({"metric": "score", "direction": "maximize"})
    trial["metadata"]["annotations"] = {ANNOTATION_SWEEP: definition}
    assert declared_goal([trial, declaring("b", "min", "score")], "score") is Goal.MAX
    assert declared_goal([trial], "dice") is None
    for broken in ("", "[]", '{"metric": "score"}', '{"metric": "score", "direction": ["max"]}'):
        trial["metadata"]["annotations"] = {ANNOTATION_SWEEP: broken}
        assert declared_goal([trial], "score") is None


def test_without_a_goal_no_job_is_the_best_and_both_ends_are_shown() -> None:
    first, second = job("a", [0.5, 0.2]), job("b", [0.1, 0.9])
    found = comparison([first, second], "loss", None)
    assert [(row["job"], row["best"], row["lowest"]["value"], row["highest"]["value"]) for row in found] == [
        ("a", None, 0.2, 0.5),
        ("b", None, 0.1, 0.9),
    ]


def test_jobs_are_compared_by_the_settings_that_differ_with_the_best_first_and_those_without_a_value_last() -> None:
    jobs = [
        job("none", [], "--lr", "0.3", "--epochs", "2"),
        job("worse", [0.5], "--lr=0.1", "--epochs", "2"),
        job("better", [0.2], "--lr", "0.2", "--epochs", "2", env=[{"name": "SEED", "value": "7"}]),
    ]
    assert [(row["job"], row["best"], row["settings"]) for row in comparison(jobs, "loss", Goal.MIN)] == [
        ("better", 0.2, {"--lr": "0.2", "SEED": "7"}),
        ("worse", 0.5, {"--lr": "0.1", "SEED": None}),
        ("none", None, {"--lr": "0.3", "SEED": None}),
    ]


def test_options_have_their_values_and_a_negative_number_is_one() -> None:
    words = ["train.py", "--shift", "-0.5", "--amp", "--layers", "64", "32", "-x=1"]
    expected = {"argument 1": "train.py", "--shift": "-0.5", "--amp": "yes", "--layers": "64 32", "-x": "1"}
    assert options(words) == expected
