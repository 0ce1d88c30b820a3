"""Debian's Chromium, as people have it: sizes, console, keyboard, and whether a page can be read by everybody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains

from grete.testing.server_cluster import jars_directory

_AXE = "axe-core-4.10.3"
_QUIET = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    "--disable-dev-shm-usage",
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


class Browser:
    """A window of Chromium's."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        self._axe = (jars_directory("GRETE_BROWSER", _AXE) / "node_modules/axe-core/axe.min.js").read_text()

    def open(self, address: str) -> None:
        self.driver.get(address)

    def resize(self, width: int, height: int = 900) -> None:
        """To a width of the page, whatever the window's frame has."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def darken(self, scheme: str) -> None:
        """`dark` or `light`, as a person prefers it."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def overflow(self) -> int:
        """Pixels by which the page is wider than the window."""
        script = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.driver.execute_script(script))

    def texts_that_leave_their_boxes(self) -> list[str]:
        """Texts of a graph that are wider than the box that they stand in."""
        script = """
            return [...document.querySelectorAll("svg.plan text")].filter(text => {
                const own = text.getBBox();
                return ![...document.querySelectorAll("svg.plan rect")].some(rect => {
                    const box = rect.getBBox();
                    return own.x >= box.x && own.y >= box.y - 1 && own.x + own.width <= box.x + box.width &&
                        own.y + own.height <= box.y + box.height + 1;
                });
            }).map(text => text.textContent);
        """
        return [str(one) for one in self.driver.execute_script(script)]

    def complaints(self) -> list[str]:
        """What the console has said since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]

    def barriers(self) -> list[str]:
        """Violations that axe finds, each with its first place; its script is put in behind the page's own policy."""
        self.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": self._axe})
        result: dict[str, Any] = self.driver.execute_async_script("axe.run().then(arguments[0])")
        return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in result["violations"]]

    def text(self) -> str:
        """What is to be read; asked of the document, since an element that was found may be of the page before."""
        return str(self.driver.execute_script("return document.body ? document.body.innerText : ''"))

    def says_that_nobody_answers(self) -> bool:
        """Whether the page tells that its server is gone."""
        return bool(self.driver.execute_script("return document.getElementById('gone')?.hidden === false"))

    def held(self) -> tuple[int, int]:
        """How many nodes of pages there are, and the bytes of the scripts' objects, once what is not used is gone."""
        self.driver.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
        self.driver.execute_cdp_cmd("Performance.enable", {})
        found = self.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        values = {one["name"]: one["value"] for one in found}
        return int(values["Nodes"]), int(values["JSHeapUsedSize"])

    def renew(self, times: int) -> None:
        """Let the page be fetched anew and take its content in so often, as it does after each look at its job."""
        script = """
            const [times, done] = arguments;
            (async () => {
                for (let i = 0; i < times; i++) {
                    tag = "";
                    document.getElementById("main").append(document.createComment("older"));
                    await renew();
                }
            })().then(() => done(document.getElementById("main").innerHTML.includes("older")));
        """
        assert not self.driver.execute_async_script(script, times), "the page was not renewed"

    def press(self, *keys: str) -> None:
        """Keys for what has the focus, one after the other."""
        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def focused(self) -> str:
        """The name of the field that has the focus; empty where none has."""
        return str(self.driver.execute_script("return document.activeElement?.name || ''"))

    def follow(self, link: str) -> None:
        """Click a link by its text, found and clicked in one step: a page that follows its job puts in new ones."""
        script = "[...document.links].find(one => one.textContent.trim() === arguments[0]).click()"
        self.driver.execute_script(script, link)


@contextmanager
def opened_browser(folder: Path) -> Iterator[Browser]:
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in (*_QUIET, f"--user-data-dir={folder}"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
