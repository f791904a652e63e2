"""Rows, pages and curves of the dashboard."""

import math
from typing import Any

import pytest

from horovodjob_dashboard.curves import charts_of_a_job, charts_of_jobs, ticks
from horovodjob_dashboard.job_rows import ROWS_OF_A_PAGE, Selection, page, row

Object = dict[str, Any]


def job(name: str, **status: Any) -> Object:
    metadata = {"namespace": "team", "name": name, "creationTimestamp": "2026-11-22T12:00:00Z"}
    return {"metadata": metadata, "spec": {"worker": {"replicas": 2}}, "status": status}


def trained(*losses: float, **other: list[float]) -> Object:
    epochs = [
        {"epoch": epoch, "metrics": {"loss": loss, **{name: values[epoch - 1] for name, values in other.items()}}}
        for epoch, loss in enumerate(losses, start=1)
    ]
    return job("train", training={"progress": 1, "history": epochs})


def test_a_page_has_at_most_a_hundred_jobs_and_the_last_page_the_rest() -> None:
    rows = [row(job(f"job-{number:04}")) for number in range(2 * ROWS_OF_A_PAGE + 1)]
    last = page(rows, Selection(sort="name", page=9))
    assert (last.total, last.number, last.pages) == (201, 3, 3)
    assert [each.name for each in last.rows] == ["job-0200"]


@pytest.mark.parametrize("sort", ["name", "-name", "phase", "progress", "-gpus", "created"])
def test_jobs_without_a_status_are_in_each_order(sort: str) -> None:
    rows = [row(job("new")), row(job("old", phase="Succeeded", training={"progress": 1}))]
    assert {each.name for each in page(rows, Selection(sort=sort)).rows} == {"new", "old"}


@pytest.mark.parametrize(
    "query", [{"page": "-1"}, {"page": "x"}, {"page": "9" * 30}, {"sort": "words"}, {"sort": "--name"}]
)
def test_an_invalid_address_shows_the_first_page_with_the_newest_jobs(query: dict[str, str]) -> None:
    assert Selection.from_query(query) == Selection()


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 1, [0, 0.5, 1]), (1703, 1760, [1700, 1720, 1740, 1760]), (-3, 7, [-5, 0, 5, 10]), (2, 2, [2, 2.5])],
)
def test_ticks_are_round_numbers_around_the_values(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == expected


@pytest.mark.parametrize(
    "losses",
    [(0.0, 0.0), (5e-324, 0.0), (1.7e308, -1.7e308), (1e-300, 2e-300), (0.1 + 0.2, 0.3), (1e15, 1e15 + 1), (7.0,)],
)
def test_each_point_of_any_curve_is_inside_the_picture(losses: tuple[float, ...]) -> None:
    (chart,) = charts_of_a_job(trained(*losses))
    points = [(point.x, point.y) for line in chart.lines for point in line.points]
    assert len(points) == len(losses)
    assert all(math.isfinite(x) and math.isfinite(y) and 52 <= x <= 470 and 10 <= y <= 176 for x, y in points)


def test_training_and_validation_share_a_chart_and_the_learning_rate_has_its_own() -> None:
    made = trained(2, 1, val_loss=[3, 2], val_recall=[0.5, 0.75])
    made["status"]["training"]["history"][0]["learningRate"] = 0.1
    found = {chart.title: [line.name for line in chart.lines] for chart in charts_of_a_job(made)}
    assert found == {"loss": ["loss", "val_loss"], "recall": ["val_recall"], "learning rate": ["learning rate"]}


def test_jobs_of_a_comparison_have_the_same_color_in_each_chart() -> None:
    jobs = {"one": trained(2, 1), "two": trained(3, 2, recall=[0.5, 0.75])}
    colors = {(chart.title, line.name): line.color for chart in charts_of_jobs(jobs) for line in chart.lines}
    assert colors == {("loss", "one"): 0, ("loss", "two"): 1, ("recall", "two"): 1}
