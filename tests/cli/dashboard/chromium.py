"""Debian's Chromium without a window, driven by WebDriver."""

import contextlib
import importlib.resources
import tempfile
from collections.abc import Iterator
from typing import Any, Self

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from cli.program import SECONDS
from support.api_client import wait_for

DRIVER, PROGRAM = "/usr/bin/chromedriver", "/usr/bin/chromium"
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # The tests run beside others: a small /dev/shm, and one size of fonts everywhere.
    "--disable-dev-shm-usage",
    "--force-device-scale-factor=1",
)
WIDTHS = (360, 390, 768, 900, 1024, 1440, 2560)
AXE = importlib.resources.files("axe_playwright_python").joinpath("axe.min.js")
SERIOUS = ("serious", "critical")
# What a screen reader's user hears of the focused element, and how it differs from the same element without focus.
FOCUSED = """
const element = document.activeElement;
const style = getComputedStyle(element);
return {
  name: element === document.body ? "" : (element.labels?.[0] ?? element).textContent.trim() || element.ariaLabel || "",
  outline: style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth),
  isSeen: element.getBoundingClientRect().width > 0,
};
"""
# Elements that stick out of the page at the right.
TOO_WIDE = """
const limit = document.documentElement.clientWidth;
if (document.documentElement.scrollWidth <= limit) return [];
return [...document.querySelectorAll("body *")].filter((element) => element.getBoundingClientRect().right > limit + 1)
  .map((element) => element.outerHTML.slice(0, 120));
"""
REQUESTED = """
const addresses = performance.getEntries().filter((entry) => ["navigation", "resource"].includes(entry.entryType));
return addresses.map((entry) => new URL(entry.name).origin);
"""
VIOLATIONS = """
const [rules, done] = arguments;
axe.run({resultTypes: ["violations"], ...(rules.length ? {runOnly: rules} : {})}).then(
  (found) => done(found.violations.map((one) => [one.impact, one.id, one.nodes.map((node) => node.html).slice(0, 3)])),
  (error) => done([["critical", String(error), []]]),
);
"""


# Whether this is the page itself, and its scripts have run: it is written into the document that asks for it, whose
# state can be `complete` before.
LOADED = """
const has = (script) => document.querySelector(`script[src$="/${script}.js"]`);
return Boolean(document.body) && !document.querySelector("meta[name=page-secret]")
  && document.readyState === "complete" && (!has("dashboard") || typeof followLog === "function")
  && (!has("job") || typeof folded === "function");
"""


class Chromium:
    """A browser with one page."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def open(self, address: str) -> Self:
        """Opens a page and waits for it, in place of the document that asks for it with the secret of the session."""
        self.driver.get(address)
        wait_for("the page", lambda: self.run(LOADED))
        return self

    def run(self, script: str, *arguments: Any) -> Any:
        """The value of a function's body in the page."""
        return self.driver.execute_script(script, *arguments)

    @property
    def text(self) -> str:
        """The visible words of the page."""
        return " ".join(str(self.run("return document.body.innerText")).split())

    def shows(self, *texts: str) -> Self:
        """Waits until the page shows these texts."""
        shown = ""

        def has_texts() -> bool:
            nonlocal shown
            shown = self.text
            return all(each in shown for each in texts)

        try:
            wait_for(f"{texts} in the page", has_texts, seconds=SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}; it shows: {shown[:2000]}") from None
        return self

    def show(self, *, scheme: str = "light", width: int = 1280, height: int = 900) -> None:
        """Dark or light, on a screen of this size in CSS pixels."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def press(self, *keys: str) -> None:
        """Presses keys, wherever the focus is."""
        ActionChains(self.driver).send_keys(*keys).perform()

    def tab(self) -> dict[str, Any]:
        """Presses the Tab key: the name of the element that has the focus now, and whether a user sees that."""
        self.press(Keys.TAB)
        found: dict[str, Any] = self.run(FOCUSED)
        return found

    def tab_to(self, name: str) -> None:
        """Presses the Tab key until the element with this name has the focus; fails after a round."""
        met: list[str] = []
        while [name] != met[-1:]:
            met.append(str(self.tab()["name"]).partition("\n")[0].strip())
            assert len(met) < 100, f"{name} is not reached: {met}"

    def violations(self, *rules: str) -> list[Any]:
        """What axe-core finds in the page that is serious or critical, by these rules: impact, rule and elements."""
        if not self.run("return 'axe' in window"):
            self.run(AXE.read_text())  # WebDriver's scripts are not subject to the page's policy
        return [one for one in self.driver.execute_async_script(VIOLATIONS, rules) if one[0] in SERIOUS]

    def problems_of_all_screens(self) -> list[Any]:
        """What axe-core finds in dark and light, and elements that stick out of small, usual and large screens."""
        found = [("light", *one) for one in self.violations()]
        self.show(scheme="dark")  # which differs in its colors only
        found += [("dark", *one) for one in self.violations("color-contrast")]
        for width in WIDTHS:
            self.show(width=width)
            found += [(width, one) for one in self.run(TOO_WIDE)]
        self.show()
        return found

    def heap(self) -> float:
        """The memory of the page's objects in megabytes, after garbage collection."""
        self.driver.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
        return float(self.driver.execute_cdp_cmd("Runtime.getHeapUsage", {})["usedSize"]) / 1e6

    def requested(self) -> set[str]:
        """The origins of all that the page has requested."""
        return set(self.run(REQUESTED))


@contextlib.contextmanager
def chromium() -> Iterator[Chromium]:
    """A browser with a new profile."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ChromeOptions()
        options.binary_location = PROGRAM
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.unhandled_prompt_behavior = "ignore"
        driver = Chrome(options, Service(DRIVER))
        driver.set_script_timeout(SECONDS)  # as long as for a text of a page: axe-core computes for seconds
        try:
            yield Chromium(driver)
        finally:
            driver.quit()
