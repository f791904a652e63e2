"""The pages on screens from 390 to 1,440 pixels: nothing sticks out, and the phase is readable."""

from cli.cluster_state import ClusterState, condition
from cli.dashboard.chromium import TOO_WIDE, Chromium
from cli.dashboard.sample_jobs import COMPARED, RUNNING, create_samples
from cli.kubelet import Kubelet
from support.api_client import wait_for

WIDTHS = (390, 768, 900, 1024, 1440)
IMAGE_ERROR = (
    'worker 0 cannot start: ErrImagePull: failed to pull and unpack image "registry.example.com/team/project/training-'
    'with-a-long-name:2026-11-25-0123456789abcdef0123456789abcdef01234567": failed to resolve reference: pull access '
    "denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization "
    "failed; " * 3
)
ROWS = """
return [...document.querySelectorAll(".jobs tbody tr")].map((row) => {
  const sentence = row.querySelector(".sentence"), style = getComputedStyle(sentence);
  return {height: row.getBoundingClientRect().height, width: sentence.parentElement.getBoundingClientRect().width,
          text: sentence.textContent, isInView: sentence.getBoundingClientRect().right <= innerWidth + 1};
});
"""
# The texts that the newest picture of a canvas has, and where they are.
RECORD = """
const {fillText, clearRect} = CanvasRenderingContext2D.prototype;
CanvasRenderingContext2D.prototype.clearRect = function (...box) { window.texts = []; clearRect.apply(this, box); };
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  const {width} = this.measureText(text), isSide = this.textAlign === "right";
  const left = isSide ? x - width : this.textAlign === "center" ? x - width / 2 : x;
  (window.texts ??= []).push({text, left, right: left + width, width: this.canvas.width, isSide});
  fillText.call(this, text, x, y);
};
"""
# Texts of the axes that are outside their picture, or equal to another one of the same axis.
CLIPPED = """
return [...document.querySelectorAll("figure svg")].flatMap((svg) => {
  const frame = svg.viewBox.baseVal;
  const texts = [...svg.querySelectorAll("text")];
  const outside = texts.filter((text) => { const box = text.getBBox();
    return box.x < frame.x - 1 || box.x + box.width > frame.width + 1; }).map((text) => text.textContent);
  const ends = texts.filter((text) => text.getAttribute("text-anchor") === "end").map((text) => text.textContent);
  return [...outside, ...ends.filter((text, index) => ends.indexOf(text) !== index)];
});
"""


def wait_for_width(page: Chromium, width: int) -> None:
    """Waits until the page has this width."""
    wait_for("the screen", lambda: page.run("return innerWidth") == width)


def test_rows_of_the_list_are_readable_and_nothing_sticks_out_of_a_page_on_each_screen(
    page: Chromium, address: str, cluster: ClusterState, kubelet: Kubelet
) -> None:
    create_samples(cluster)
    kubelet.log(cluster.namespace, f"{RUNNING}-launcher").write("x" * 500)
    cluster.create("no-image", {"horovodjob.dev/experiment": "imagenet", "horovodjob.dev/owner": "ada"})
    waits = condition("Reconciling", "ErrImagePull", IMAGE_ERROR)
    cluster.report("no-image", phase="Starting", executionState="queued", conditions=[waits])
    page.shows("11 jobs", "ErrImagePull")
    for width in WIDTHS:
        page.show(width=width)
        wait_for_width(page, width)
        rows = page.run(ROWS)
        assert len(rows) == 11
        assert [row for row in rows if row["height"] > 220] == [], width
        assert [row for row in rows if row["text"] and row["width"] < 180] == [], width
        assert [row for row in rows if row["text"] and not row["isInView"]] == [], width
        assert page.run(TOO_WIDE) == [], width
    compared = "&".join(f"job={cluster.namespace}/{name}" for name in COMPARED)
    for path in (f"/jobs/{cluster.namespace}/{RUNNING}", f"/compare?{compared}", "/usage?days=365", "/cluster"):
        page.open(f"{address.partition('/?')[0]}{path}")
        for width in WIDTHS:
            page.show(width=width)
            wait_for_width(page, width)
            assert page.run(TOO_WIDE) == [], (path, width)


AXES = (
    (0.00049975, 0.00049985),
    (-2.5e-7, 3e-7),
    (1.0, 1.0),
    (5e11, 2.0),
)


def test_the_texts_of_axes_are_whole_and_differ(page: Chromium, address: str, cluster: ClusterState) -> None:
    page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": RECORD})
    page.show(width=390)
    for number, values in enumerate(AXES):
        cluster.create(f"axes-{number}")
        epochs = [
            {"epoch": 10**6 + epoch, "time": "2026-11-22T12:00:00Z", "metrics": {"loss": value}}
            for epoch, value in enumerate(values)
        ]
        cluster.run(f"axes-{number}", training={"progress": 1, "percent": "100%", "history": epochs})
        page.open(f"{address.partition('/?')[0]}/jobs/{cluster.namespace}/axes-{number}").shows("Logarithmic")
        check_axes(page)
        page.run("window.texts = []; document.querySelector('input[name=log]').click()")
        check_axes(page)
        page.run("localStorage.removeItem('horovodjob-charts')")
        page.run("document.querySelector('.plot').remove()")  # the picture of a browser without scripts
        assert page.run(CLIPPED) == []


def check_axes(page: Chromium) -> None:
    """The texts of the plot, as soon as it is drawn."""
    wait_for("the plot", lambda: page.run("return window.texts?.length > 2"))
    drawn = page.run("return window.texts")
    assert [each for each in drawn if each["left"] < 0 or each["right"] > each["width"]] == []
    sides = [each["text"] for each in drawn if each["isSide"] and each["text"]]
    assert len(set(sides)) == len(sides) >= 2, sides
