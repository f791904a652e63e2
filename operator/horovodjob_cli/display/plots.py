"""Curves of the trainings of jobs: as text for a terminal, or as a picture or page in a file."""

import html
import io
import shutil
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from horovodjob import training_history
from horovodjob.batchai.names import display_name
from horovodjob.client.errors import ClientError, UsageError
from horovodjob.escaping import escaped
from horovodjob_cli.output import uses_color

Object = dict[str, Any]
FORMATS = (".png", ".svg", ".pdf", ".html")
MAX_COLUMNS = 100
ROWS = 12
# What plotille writes beside the curve: the values of the y axis, and the title of the x axis.
MARGIN = 25
COLORS = ("blue", "red", "green", "magenta", "cyan", "yellow")


def text_plot(jobs: Sequence[Object], metric: str) -> str:
    """The curves of a metric over the epochs; they have letters where a terminal cannot show colors."""
    import plotille

    is_colored = uses_color()
    figure = plotille.Figure()
    figure.width = max(min(shutil.get_terminal_size().columns, MAX_COLUMNS) - MARGIN, 10)
    figure.height = ROWS
    figure.with_colors = is_colored
    figure.color_mode = "names"
    figure.x_label, figure.y_label = "epoch", escaped(metric)
    figure.x_ticks_fkt = figure.y_ticks_fkt = lambda value, _: f"{value:.4g}"
    curves = [(escaped(display_name(job)), training_history.curve(job, metric)) for job in jobs]
    epochs, values = zip(*(point for _, points in curves for point in points), strict=True)
    if min(epochs) < max(epochs):
        figure.set_x_limits(min(epochs), max(epochs))
    if min(values) < max(values):
        figure.set_y_limits(min(values), max(values))
    for index, (name, points) in enumerate(curves):
        letter = None if is_colored or len(curves) == 1 else string.ascii_letters[index % len(string.ascii_letters)]
        color = COLORS[index % len(COLORS)] if is_colored else None
        if points:
            figure.plot(*zip(*points, strict=True), lc=color, label=name, marker=letter)
    return "\n".join(line.rstrip(" ⠀") for line in figure.show(legend=True).splitlines())


def write_picture(path: Path, jobs: Sequence[Object], metrics: Sequence[str], rows: Sequence[Object] = ()) -> None:
    """Write the curves of each metric; a page also has a table of the rows of a comparison.

    Raises UsageError for a file that is neither a picture nor a page, ClientError without matplotlib.
    """
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise UsageError(f"{path} is no picture: its name must end with {', '.join(FORMATS)}")
    figure = _figure(jobs, metrics)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg" if suffix == ".html" else suffix.removeprefix("."))
    if suffix == ".html":
        picture = buffer.getvalue().decode()
        path.write_text(_page(", ".join(metrics), picture[picture.index("<svg") :], rows), encoding="utf-8")
    else:
        path.write_bytes(buffer.getvalue())


def _figure(jobs: Sequence[Object], metrics: Sequence[str]) -> Any:
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        raise ClientError(
            "curves in a file need matplotlib; install it with `pip install 'horovodjob[plot]'`"
        ) from None

    figure = Figure(figsize=(8, 4 * len(metrics)), layout="constrained")
    for number, metric in enumerate(metrics, 1):
        axes = figure.add_subplot(len(metrics), 1, number)
        for job in jobs:
            if points := training_history.curve(job, metric):
                axes.plot(*zip(*points, strict=True), label=display_name(job), marker=".")
        axes.set_xlabel("epoch")
        axes.set_ylabel(metric)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
    return figure


def _page(title: str, picture: str, rows: Sequence[Object]) -> str:
    """An HTML page without references to other files."""
    head = f"<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n<title>{html.escape(title)}</title>\n"
    style = "<style>body{font-family:sans-serif}td,th{padding:.2em 1em;text-align:left}</style>\n"
    table = ""
    if rows:
        titles = "".join(f"<th>{html.escape(str(name))}</th>" for name in rows[0])
        lines = [
            "".join(f"<td>{'' if value is None else html.escape(str(value))}</td>" for value in row.values())
            for row in rows
        ]
        table = "<table>\n" + "\n".join(f"<tr>{line}</tr>" for line in (titles, *lines)) + "\n</table>\n"
    return f"{head}{style}{picture}\n{table}</html>\n"
