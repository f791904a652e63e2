"""The page of a job in a real browser: why it failed, what it does now, its log, and its curves."""

from selenium.webdriver.common.action_chains import ActionChains

from cli.cluster_state import ClusterState, condition
from cli.dashboard.chromium import Chromium
from cli.kubelet import NODE, Kubelet
from support.api_client import Object, wait_for

CAUSE = "ValueError: the loss is not a number since step 2"
STALL, STALLED = "no step since 14:32:10Z (usual: 0.8 s)", "rank 1 (worker 1, node gpu-7) is stopped; the other waits"
END = "RankFailed: mpirun ended with exit code 3; attempt 1"
RULE = "-" * 74
MPIRUN = (
    RULE,
    "Primary job  terminated normally, but 1 process returned",
    "a non-zero exit code. Per user-direction, the job has been aborted.",
    RULE,
    RULE,
    "mpirun detected that one or more processes exited with non-zero status, thus causing",
    "the job to be terminated. The first process to do so was:",
    "",
    "  Process name: [[12873,1],0]",
    "  Exit code:    3",
    RULE,
)
VISIBLE_LOG = "return document.getElementById('lines').innerText"
IN_VIEW = """
const {top, bottom} = document.getElementById(arguments[0]).getBoundingClientRect();
return top >= 0 && top < innerHeight && bottom > 0;
"""
# A plot has a line for each curve, and its values; the canvas is its picture.
PLOTS = "return [...document.querySelectorAll('.uplot')].map((plot) => plot.querySelectorAll('.u-series').length)"
LEGEND = "return [...document.querySelectorAll('.u-legend :is(th, td)')].map((cell) => cell.textContent).join(' ')"
COLORED = """
const canvas = document.querySelector(".uplot canvas");
const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
let count = 0;
for (let at = 3; at < data.length; at += 4) count += data[at] > 0;
return count;
"""


def history(*losses: float | None) -> list[Object]:
    return [
        {"epoch": epoch, "time": "2026-11-22T12:00:00Z", "metrics": {} if loss is None else {"loss": loss}}
        | ({"nonFinite": ["loss"]} if loss is None else {})
        for epoch, loss in enumerate(losses, start=1)
    ]


def open_job(page: Chromium, address: str, cluster: ClusterState) -> Chromium:
    """The page of the job `train`."""
    return page.shows("1 job").open(f"{address.partition('/?')[0]}/jobs/{cluster.namespace}/train")


def test_the_cause_and_what_the_program_does_now_are_first_in_the_list_and_on_the_page(
    page: Chromium, address: str, cluster: ClusterState
) -> None:
    cluster.create()
    now = {"progress": 0.5, "percent": "50%", "epoch": 3, "epochs": 10, "step": 4, "stepsPerEpoch": 8}
    more = {"samplesPerSecond": 1234.5, "metrics": {"acc": 0.5, "loss": 1.5}, "eta": "2099-01-01T00:00:00Z"}
    running = condition("Running", "RanksRunning", "2 ranks run")
    stalled = condition("Progressing", "TrainingStalled", f"{STALL}: {STALLED}") | {"status": "False"}
    cluster.run(conditions=[running, stalled], training=now | more)
    page.shows(f"Running {STALLED}")
    text = open_job(page, address, cluster).shows(STALL, "Epoch 3 of 10").text
    assert text.index(STALLED) < text.index(STALL) < text.index("Workers")
    assert page.run("return document.querySelector('.lead.cause').textContent") == STALLED
    assert "50 %, until 2099-01-01 00:00 UTC Epoch 3 of 10 Step 4 of 8 loss 1.5 acc 0.5 Samples/s 1,23" in text
    progressing = condition("Progressing", "StepsCompleted", "the training completes steps")
    cluster.run(conditions=[running, progressing], training=now | {"epoch": 4, "nonFinite": ["loss"]})
    page.shows("Epoch 4 of 10", "loss NaN or infinite")
    wait_for("no cause", lambda: not page.run("return document.querySelector('.lead.cause')"))

    cluster.fail(exit_code=3, conditions=[condition("Failed", "BackoffLimitExceeded", f"{CAUSE} ({END})")])
    text = page.shows(CAUSE, END).text
    assert text.index(CAUSE) < text.index(END) < text.index("Workers")
    page.open(address.partition("/?")[0]).shows(f"Failed {CAUSE}")
    assert END not in page.text


def test_the_log_is_one_key_away_unless_keys_are_switched_off_and_folds_what_mpirun_says_about_the_end(
    page: Chromium, address: str, cluster: ClusterState, kubelet: Kubelet
) -> None:
    cluster.pod(cluster.create(), "launcher", node=NODE)
    cluster.fail(conditions=[condition(type_, "X", "y" * 300) for type_ in ("Failed", "Stalled", "Ready", "Queued")])
    log = kubelet.log(cluster.namespace, "train-launcher")
    table = ("a table of the program", RULE, "loss 1.5", RULE)
    log.write("epoch 1", *table, CAUSE, *MPIRUN, "the last line")
    open_job(page, address, cluster).shows("the last line", "mpirun about the end of the ranks, 11 lines")
    shown = page.run(VISIBLE_LOG)
    assert all(line in shown for line in ("epoch 1", *table, CAUSE))
    assert ("Primary job" in shown, "Exit code" in shown) == (False, False)
    page.run("scrollTo(0, document.body.scrollHeight)")
    page.press("l")
    wait_for("the log", lambda: page.run(IN_VIEW, "lines"))
    assert page.run("return document.activeElement.id") == "lines"
    page.run("document.querySelector('#lines summary').click()")
    log.write("another line")
    page.shows("another line")
    assert "Exit code:    3" in page.run(VISIBLE_LOG), "what a user has opened stays open"
    assert page.run("return lines.textContent.split('\\n').length") >= len(MPIRUN) + 7

    page.run("document.querySelector('input[name=find]').focus()")
    page.press("lap")
    assert page.run("return document.querySelector('input[name=find]').value") == "lap"
    page.run("document.activeElement.blur(); document.getElementById('keys').click()")
    page.press("l")
    assert page.run("return document.activeElement.id") != "lines"
    page.driver.refresh()
    page.shows("Shortcuts")
    wait_for("the choice", lambda: page.run("return !document.getElementById('keys').checked"))
    page.run("document.getElementById('keys').click()")


def test_curves_have_values_under_the_pointer_zoom_log_scale_and_smoothing(
    page: Chromium, address: str, cluster: ClusterState
) -> None:
    cluster.create()
    open_job(page, address, cluster)
    reported = {"progress": 1, "percent": "100%", "history": history(None, None)}
    cluster.run(training=reported)  # the first curve of the page comes while it is open
    page.shows("Logarithmic")
    wait_for("a plot", lambda: page.run(PLOTS) == [2])
    cluster.run(training=reported | {"samplesPerSecond": 5.0})
    page.shows("Samples/s 5")
    assert page.run(PLOTS) == [2], "a change of something else leaves the plot"
    assert page.run(COLORED) > 50, "the marks of NaN"
    words = page.run("return document.querySelector('figure').textContent.replace(/\\s+/g, ' ')")
    assert "Epochloss 1NaN 2NaN" in words

    cluster.run(training={"progress": 1, "percent": "100%", "history": history(8.0, 4.0, None, 1.0, 0.5)})
    wait_for("the epochs", lambda: page.run("return document.querySelectorAll('.values tbody tr').length") == 5)
    wait_for("a plot", lambda: page.run(PLOTS) == [2])
    assert page.run("return getComputedStyle(document.querySelector('figure svg')).display") == "none"
    place = page.driver.find_element("css selector", ".u-over")
    ActionChains(page.driver).move_to_element(place).perform()
    wait_for("the value", lambda: "Epoch 3 loss NaN" in page.run(LEGEND))
    ActionChains(page.driver).move_to_element_with_offset(place, place.size["width"] // 2 - 1, 0).perform()
    wait_for("the value", lambda: "Epoch 5 loss 0.5" in page.run(LEGEND))
    linear = page.run("return document.querySelector('.uplot canvas').toDataURL()")
    page.run("document.querySelector('input[name=log]').click()")
    wait_for("the scale", lambda: page.run("return document.querySelector('.uplot canvas').toDataURL()") != linear)
    page.run(
        "const range = document.querySelector('input[name=smoothing]'); range.value = 0.5;"
        "range.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    wait_for("both lines", lambda: page.run(PLOTS) == [3])
    place = page.driver.find_element("css selector", ".u-over")
    drag = (
        ActionChains(page.driver).move_to_element_with_offset(place, -place.size["width"] // 2 + 2, 0).click_and_hold()
    )
    drag.move_to_element_with_offset(place, -place.size["width"] // 4, 0).release().perform()
    ActionChains(page.driver).move_to_element_with_offset(place, place.size["width"] // 2 - 1, 0).perform()
    wait_for("the zoom", lambda: "Epoch 2 loss 4" in page.run(LEGEND))
    cluster.run(training={"progress": 1, "percent": "100%", "history": history(8.0, 4.0, None, 1.0, 0.5, 0.25)})
    wait_for("the new epoch", lambda: page.run("return document.querySelectorAll('.values tbody tr').length") == 6)
    wait_for("a plot", lambda: page.run(PLOTS) == [3])
    place = page.driver.find_element("css selector", ".u-over")
    ActionChains(page.driver).move_to_element_with_offset(place, place.size["width"] // 2 - 2, 0).perform()
    wait_for("the zoom stays", lambda: "Epoch 2 loss 4" in page.run(LEGEND))
    page.run("document.querySelector('.chart-tools button').click()")
    ActionChains(page.driver).move_to_element_with_offset(place, place.size["width"] // 2 - 1, 0).perform()
    wait_for("all epochs", lambda: "Epoch 6 loss 0.25" in page.run(LEGEND))
    page.run("localStorage.removeItem('horovodjob-charts')")


def test_a_comparison_changes_while_its_jobs_run(page: Chromium, address: str, cluster: ClusterState) -> None:
    labels = {"horovodjob.dev/experiment": "digits"}
    for name in ("first", "second"):
        cluster.create(name, labels)
        cluster.run(name, training={"progress": 0.1, "percent": "10%", "history": history(2.0)})
    origin = address.partition("/?")[0]
    page.shows("2 jobs").open(f"{origin}/compare?experiment=digits&namespace={cluster.namespace}").shows("2 jobs.")
    cluster.run("second", training={"progress": 0.2, "percent": "20%", "history": history(2.0, 0.125)})
    page.shows("0.125")
    assert page.text.index("second") < page.text.index("first")
    cluster.create("third", labels)
    page.shows("3 jobs.", "third")
    wait_for("the plot", lambda: page.run(PLOTS) == [3])
    page.open(f"{origin}/compare?job={cluster.namespace}/first").shows("1 job.")
    cluster.succeed("first")
    page.shows("Succeeded")
