"""Pictures of the pages for docs/images: the program for them and the tests take the same ones."""

import base64
from collections.abc import Iterable
from pathlib import Path

from cli.dashboard.chromium import Chromium
from cli.dashboard.sample_jobs import COMPARED, RUNNING, samples
from support.api_client import wait_for

LARGEST_BYTES = 150_000
WIDTH = 1280
ARE_DRAWN = "return document.querySelectorAll('.uplot').length === document.querySelectorAll('figure .plot').length"


def take_pictures(page: Chromium, origin: str, namespace: str, nodes: Iterable[str], directory: Path) -> list[Path]:
    """Writes a picture of each page of a dashboard with the sample jobs, whose cluster has these nodes."""
    compared = "&".join(f"job={namespace}/{name}" for name in COMPARED)
    pages = (
        ("jobs-list", "/", 1040, [f"{len(samples())} jobs"]),
        ("job", f"/jobs/{namespace}/{RUNNING}", 1080, ["val_loss", "worker-3", "Logarithmic"]),
        ("comparison", f"/compare?{compared}", 1180, [*COMPARED, "Logarithmic"]),
        ("cluster", "/cluster", 1000, nodes),
        ("gpu-hours", "/usage", 800, ["By owner"]),
    )
    pictures = []
    for name, path, height, texts in pages:
        page.open(origin + path).shows(*texts)
        wait_for("the plots", lambda: page.run(ARE_DRAWN))
        pictures.append(directory / f"dashboard-{name}.png")
        _take(page, pictures[-1], height)
    return pictures


def _take(page: Chromium, path: Path, height: int) -> None:
    page.driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    page.show(width=WIDTH, height=height)
    wait_for("the size of the screen", lambda: page.run("return innerHeight") == height)
    picture = base64.b64decode(page.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"])
    assert len(picture) < LARGEST_BYTES, f"{path.name} has {len(picture)} bytes; make the page shorter"
    path.write_bytes(picture)
