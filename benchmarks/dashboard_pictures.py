"""Draws docs/images/dashboard-*.svg: the dashboards' queries, answered by a real Prometheus. Grafana is not involved.

    PYTHONPATH=tests:. .venv/bin/python benchmarks/dashboard_pictures.py [--epochs 150] [--seconds 600]

An API server, the operator and Prometheus run on this machine. The script acts as scheduler and kubelet; the trainings
of handwritten digits are real processes of the trainer, and post their progress to the operator as rank 0 of a job.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from support.api_client import ROOT, Api
from support.control_plane.operator_control_plane import (
    OperatorControlPlane,
    install,
    make_namespace,
    operator_kubeconfig,
)
from support.control_plane.watch_threads import Kubelet
from support.job_driver import Job, submit
from support.monitoring import DASHBOARDS, Prometheus, create_reader, dashboard_queries, reader_manifest
from support.operator_process import Operator
from support.progress_client import token_of

COLORS = ("#3274d9", "#e0752d", "#37872d", "#c4162a", "#8f3bb8", "#806eb7", "#0a437c", "#6d1f62")
COLUMN, ROW, MARGIN = 40, 24, 8
POINTS, LEGENDS = 60, 6
Series = tuple[str, list[tuple[float, float]]]


def train(job: Job, operator: Operator, folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """A training that reports as rank 0 of the job."""
    token = folder / f"{job.name}.token"
    token.write_text(token_of(job))
    variables = {
        "HOROVODJOB_PROGRESS_URL": f"http://127.0.0.1:{operator.progress_port}/progress",
        "HOROVODJOB_PROGRESS_TOKEN_FILE": str(token),
        "HOROVODJOB_ATTEMPT": "1",
    }
    command = [sys.executable, "-m", "horovodjob_trainer", "--dataset", "digits", "--dir", str(folder / job.name)]
    with (folder / f"{job.name}.log").open("wb") as log:
        return subprocess.Popen([*command, *arguments], env=os.environ | variables, stdout=log, stderr=log)


def play(api: Api, operator: Operator, folder: Path, epochs: int) -> list[subprocess.Popen[bytes]]:
    """The trainings of two jobs; one more waits, and one fails."""
    for team in ("vision", "speech"):
        make_namespace(api, team)
    submit(api, "speech", "waiting")
    slow, quick = submit(api, "vision", "digits-slow"), submit(api, "speech", "digits-quick")
    trainings = []
    for job, rate in ((slow, "0.0002"), (quick, "0.002")):
        job.advance_to("Running")
        trainings.append(train(job, operator, folder, "--epochs", str(epochs), "--learning-rate", rate))
    failing = submit(api, "vision", "failing", runPolicy={"backoffLimit": 1}).advance_to("Restarting")
    failing.skip_backoff()
    failing.advance_to("Running", since="Queued").end("launcher", 1)
    return trainings


def series(prometheus: Prometheus, query: str, legend: str, start: float, end: float) -> Iterator[Series]:
    """Samples of one query, by the legend of each series."""
    for found in prometheus.series(query, start, end, (end - start) / POINTS):
        name = legend
        for label, value in found["metric"].items():
            name = name.replace(f"{{{{{label}}}}}", value)
        yield name, [(float(at), float(value)) for at, value in found["values"] if value != "NaN"]


def number(value: float, unit: str) -> str:
    if unit == "percentunit":
        return f"{value:.0%}"
    if unit == "bytes":
        return f"{value / 2**20:.0f} MiB"
    if unit == "s":
        divisor, name = next((pair for pair in ((3600, "h"), (60, "min")) if value > 3 * pair[0]), (1, "s"))
        return f"{value / divisor:.3g} {name}"
    return f"{value:.3g}{'/s' if unit in ('reqps', 'ops') else ''}"


def panel_svg(panel: dict[str, Any], found: list[Series], start: float, end: float) -> Iterator[str]:
    """One panel: lines over time, or the last values."""
    grid, unit = panel["gridPos"], panel["fieldConfig"]["defaults"]["unit"]
    x, y, width, height = grid["x"] * COLUMN, grid["y"] * ROW, grid["w"] * COLUMN - MARGIN, grid["h"] * ROW - MARGIN
    yield f'<g transform="translate({x},{y})"><rect width="{width}" height="{height}" rx="3" class="p"/>'
    yield f'<text x="8" y="16" class="t">{escape(panel["title"])}</text>'
    highest = sorted((one for one in found if one[1]), key=lambda one: max(value for _, value in one[1]))
    shown = sorted(highest[-LEGENDS:])
    if panel["type"] != "timeseries":
        for index, (name, points) in enumerate(shown):
            at = 24 + (index + 1) * 24
            yield f'<text x="8" y="{at}">{escape(name)}</text>'
            yield f'<text x="{width - 8}" y="{at}" class="n">{number(points[-1][1], unit)}</text>'
        yield "</g>"
        return
    legend = 13 * ((len(shown) + 1) // 2)
    left, top, right, bottom = 52, 26, width - 8, height - 10 - legend
    most = max((value for _, points in shown for _, value in points), default=0) or 1
    for share in (0, 0.5, 1):
        at = bottom - share * (bottom - top)
        yield f'<path d="M{left} {at:.0f}H{right}" class="g"/>'
        yield f'<text x="{left - 4}" y="{at + 3:.0f}" class="a">{number(share * most, unit)}</text>'
    for index, (name, points) in enumerate(shown):
        places = (
            f"{left + (at - start) / (end - start) * (right - left):.0f},{bottom - value / most * (bottom - top):.0f}"
            for at, value in points
        )
        yield f'<polyline points="{" ".join(places)}" stroke="{COLORS[index]}"/>'
        column, line = index % 2 * (width // 2), bottom + 13 * (index // 2 + 1)
        yield f'<text x="{8 + column}" y="{line}" style="fill:{COLORS[index]}">{escape(name[: width // 14])}</text>'
    yield "</g>"


def dashboard_svg(path: Path, prometheus: Prometheus, start: float, end: float) -> str:
    """The dashboard with what Prometheus answers to its queries."""
    board, queries = json.loads(path.read_text()), dashboard_queries()
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"]) * ROW
    style = "text{font:11px sans-serif;fill:#444}.t{font-weight:bold}.n{font-size:16px;text-anchor:end}"
    style += (
        ".a{font-size:9px;text-anchor:end}.p{fill:#fff;stroke:#ccc}.g{stroke:#eee}polyline{fill:none;stroke-width:1.5}"
    )
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {24 * COLUMN} {height}"><style>{style}</style>']
    for panel in board["panels"]:
        found: list[Series] = []
        for target in panel["targets"]:
            query = queries[f"{path.stem}: {panel['title']}: {target['legendFormat']}"]
            found += series(prometheus, query, target["legendFormat"], start, end)
        parts += panel_svg(panel, found, start, end)
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    """Plays, scrapes and draws."""
    parser = argparse.ArgumentParser(description="Draws the dashboards from the series of a real Prometheus.")
    parser.add_argument("--epochs", type=int, default=150, help="epochs of each training")
    parser.add_argument("--seconds", type=float, default=600, help="draw after so many seconds, or at their end")
    arguments = parser.parse_args()
    with OperatorControlPlane() as control_plane, tempfile.TemporaryDirectory() as name:
        api, folder = Api(control_plane.kubeconfig), Path(name)
        install(api)
        Kubelet(api).start()
        operator = Operator(operator_kubeconfig(api, folder / "kubeconfig"), folder / "log", metrics_authorization="1")
        operator.start()
        token = create_reader(api, reader_manifest(api, folder))
        prometheus = Prometheus(folder, f"127.0.0.1:{operator.tls_port}", token).start()
        start, trainings = time.time(), list[subprocess.Popen[bytes]]()
        try:
            trainings = play(api, operator, folder, arguments.epochs)
            while time.time() < start + arguments.seconds and any(one.poll() is None for one in trainings):
                time.sleep(1)
            end = time.time()
            for path in DASHBOARDS:
                picture = ROOT / "docs" / "images" / f"dashboard-{path.stem}.svg"
                picture.parent.mkdir(exist_ok=True)
                picture.write_text(dashboard_svg(path, prometheus, start, end))
                print(f"wrote {picture.relative_to(ROOT)} from {end - start:.0f} s of samples")
        finally:
            for one in trainings:
                one.kill()
            prometheus.kill()
            operator.kill()


if __name__ == "__main__":
    main()
