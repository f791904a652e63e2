"""The pages of the dashboard in a real browser: what they show, on all screens, with the keyboard, and without help."""

from pathlib import Path

from selenium.webdriver.common.keys import Keys

from cli.cluster_state import ClusterState, condition
from cli.dashboard.chromium import LOADED, TOO_WIDE, WIDTHS, Chromium
from cli.dashboard.pictures import WIDTH, take_pictures
from cli.dashboard.sample_jobs import (
    BLOCKED,
    COMPARED,
    FAILED,
    QUEUED,
    RUNNING,
    create_samples,
)
from cli.kubelet import NODE, Kubelet
from horovodjob.api.constants import Phase
from support.api_client import ROOT, Object, wait_for

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
FOCUSABLE = """
return document.querySelectorAll("a[href], button, input:not([type=hidden]), select, summary, [tabindex]").length;
"""


def test_pages_show_jobs_of_every_phase_without_serious_problems_and_are_used_with_the_keyboard(
    page: Chromium, address: str, cluster: ClusterState, kubelet: Kubelet, tmp_path: Path
) -> None:
    origin, job = address.partition("/?")[0], f"/jobs/{cluster.namespace}"
    create_samples(cluster)
    kubelet.log(cluster.namespace, f"{RUNNING}-launcher").write("Epoch 16/24", "loss 1.04")
    page.shows("10 jobs", *Phase, BLOCKED)
    compared = "&".join(f"job={cluster.namespace}/{name}" for name in COMPARED)
    shown = {
        "/": (RUNNING, "Running"),
        f"{job}/{RUNNING}": ("worker-3", "loss 1.04", "val_loss", "AllRanksRun", "Terminate"),
        f"{job}/{FAILED}": ("No such file or directory", "exit code 1"),
        f"/compare?{compared}": (*COMPARED, "0.03", "learning-rate"),
        "/cluster": (NODE, "research", BLOCKED),
        "/usage?days=365": ("By owner",),
        f"{job}/other": ("it may have been deleted",),
        "/other": ("There is no page /other.",),
    }
    problems = {}
    for path, texts in shown.items():
        page.open(origin + path).shows(*texts)
        problems[path] = page.problems_of_all_screens()
        assert page.requested() == {origin}
    assert {path: found for path, found in problems.items() if found} == {}
    pictures = take_pictures(page, origin, cluster.namespace, [NODE], tmp_path)
    assert {path.name for path in pictures} == {
        path.name for path in (ROOT / "docs" / "images").glob("dashboard-*.png")
    }
    assert {int.from_bytes(path.read_bytes()[16:20]) for path in pictures} == {WIDTH}  # the width in a PNG's header

    cluster.create("no-image", {"horovodjob.dev/experiment": "imagenet", "horovodjob.dev/owner": "ada"})
    waits = condition("Reconciling", "ErrImagePull", IMAGE_ERROR)
    cluster.report("no-image", phase="Starting", executionState="queued", conditions=[waits])
    page.open(f"{origin}/").shows("11 jobs", "ErrImagePull")
    for width in WIDTHS[1:]:
        page.show(width=width)
        wait_for("the screen", lambda: page.run("return innerWidth") == width)  # noqa: B023
        rows = page.run(ROWS)
        assert (len(rows), [row for row in rows if row["height"] > 220]) == (11, []), width
        assert [row for row in rows if row["text"] and (row["width"] < 180 or not row["isInView"])] == [], width
        assert page.run(TOO_WIDE) == [], width

    page.show()
    assert page.tab()["name"] == "Skip to the content"
    seen = [page.tab() for _ in range(page.run(FOCUSABLE) - 1)]
    names = {str(one["name"]).partition("\n")[0].strip() for one in seen}
    assert {"Text", "Compare the selected", f"Compare {QUEUED}", QUEUED, "Age", "Cluster"} <= names
    assert [one for one in seen if not (one["outline"] and one["isSeen"] and one["name"])] == []
    page.tab_to(RUNNING)
    page.press(Keys.ENTER)
    page.shows("worker-3")
    page.tab_to("Suspend")
    page.press(Keys.ENTER)
    assert "Its pods are deleted" in page.driver.switch_to.alert.text
    page.driver.switch_to.alert.dismiss()
    assert not cluster.api.get(f"{cluster.jobs}/{RUNNING}")["spec"]["runPolicy"]["suspend"]


def test_the_buttons_ask_before_they_change_the_job(page: Chromium, address: str, cluster: ClusterState) -> None:
    cluster.create()
    cluster.run()
    page.shows("1 job").open(f"{address.partition('/?')[0]}/jobs/{cluster.namespace}/train")

    def policy() -> Object:
        found: Object = cluster.api.get(f"{cluster.jobs}/train")["spec"]["runPolicy"]
        return {key: found.get(key, False) for key in ("suspend", "terminate")}

    def press(button: str, *, is_accepted: bool) -> str:
        page.shows(button)
        page.run("isOld = true; document.querySelector(`button[formaction$=${arguments[0]}]`).click()", button.lower())
        question = page.driver.switch_to.alert
        text = question.text
        assert policy() == before
        question.accept() if is_accepted else question.dismiss()
        if is_accepted:  # a page that another one replaces asks nothing
            wait_for("the page as it is after that", lambda: page.run(f"if (!window.isOld) {{ {LOADED} }}"))
        return text

    before = {"suspend": False, "terminate": False}
    assert "Its pods are deleted" in press("Suspend", is_accepted=False)
    press("Suspend", is_accepted=True)
    page.shows("Resume")
    assert policy() == (before := {"suspend": True, "terminate": False})
    press("Resume", is_accepted=False)
    press("Resume", is_accepted=True)
    page.shows("Suspend")
    assert policy() == (before := {"suspend": False, "terminate": False})
    assert "never runs again" in press("Terminate", is_accepted=False)
    press("Terminate", is_accepted=True)
    wait_for("the termination", lambda: policy()["terminate"])


AXES = (
    (0.00049975, 0.00049985),
    (-2.5e-7, 3e-7),
    (1.0, 1.0),
    (5e11, 2.0),
)


def test_the_texts_of_axes_are_whole_and_differ(page: Chromium, address: str, cluster: ClusterState) -> None:
    recorder = page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": RECORD})
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
    page.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", recorder)


def check_axes(page: Chromium) -> None:
    """The texts of the plot, as soon as it is drawn."""
    wait_for("the plot", lambda: page.run("return window.texts?.length > 2"))
    drawn = page.run("return window.texts")
    assert [each for each in drawn if each["left"] < 0 or each["right"] > each["width"]] == []
    sides = [each["text"] for each in drawn if each["isSide"] and each["text"]]
    assert len(set(sides)) == len(sides) >= 2, sides
