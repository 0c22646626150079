"""Chromium for tests: Debian's, without a window, and what a reader of the page does with it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

Result = TypeVar("Result")

CHROMIUM = Path("/usr/bin/chromium")
DRIVER = Path("/usr/bin/chromedriver")
NEEDS_CHROMIUM = pytest.mark.skipif(
    not DRIVER.exists() and os.environ.get("CI") != "true",
    reason="needs Debian's chromium and chromium-driver",
)

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --window-size=1200,800"
)

#: Of the checks of the heap under which CI runs tests: they are for this process, not for a browser.
NOT_PASSED_ON = ("LD_PRELOAD", "MALLOC_CHECK_")


class Reader:
    """Somebody who reads and writes on the page."""

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver, self.address = driver, f"{url}/"

    def visit(self, *, fresh: bool = True, **settings: Any) -> None:
        """Open the page, as if for the first time if it is `fresh`, with some settings."""
        if not self.driver.current_url.startswith(self.address):
            self.driver.get(self.address)
        if fresh:
            self.run("localStorage.clear()")
        if settings:
            self.run("localStorage.setItem('pyturbo/settings', JSON.stringify(arguments[0]))", settings)
        self.driver.get(self.address)
        self.until(lambda: self.all("#model option"))

    def run(self, script: str, *arguments: Any) -> Any:
        """Run JavaScript in the page. A promise that it returns is waited for."""
        return self.driver.execute_script(script, *arguments)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        found = self.all(selector)
        assert len(found) == 1, f"{selector}: expected one element, found {len(found)}"
        return found[0]

    def texts(self, selector: str) -> list[str]:
        script = "return [...document.querySelectorAll(arguments[0])].map((element) => element.textContent)"
        return list(self.run(script, selector))

    def press(self, *keys: str, with_key: str | None = None) -> None:
        """Press keys, wherever the focus is; all of them while `with_key` is held."""
        actions = webdriver.ActionChains(self.driver, duration=0)
        if with_key:
            actions.key_down(with_key)
        for key in keys:
            actions.send_keys(key)
        if with_key:
            actions.key_up(with_key)
        actions.perform()

    def click(self, label: str, within: str = "") -> None:
        """Click the only button with a label, whether or not it is seen without the pointer over it."""
        self.run("arguments[0].click()", self.one(f'{within} button[aria-label="{label}"]'))

    def say(self, text: str) -> None:
        field = self.one("#composer-text")
        field.send_keys(text)
        field.send_keys(Keys.ENTER)

    def talk(self, text: str) -> None:
        """Say something, and wait for the end of the reply."""
        self.say(text)
        self.until(self.is_idle)

    def is_idle(self) -> bool:
        writes = self.all(".message.writing")
        return not writes and self.one("#send").get_attribute("aria-label") == "Send"

    def focused(self) -> WebElement:
        return self.driver.switch_to.active_element

    def until(self, holds: Callable[[], Result], seconds: float = 30.0) -> Result:
        """Wait until something holds, and return it."""
        end = time.monotonic() + seconds
        while True:
            try:
                found = holds()
            except AssertionError:
                if time.monotonic() > end:
                    raise
                found = None  # type: ignore[assignment]
            if found:
                return found
            assert time.monotonic() < end, "expected this to hold within some seconds"
            time.sleep(0.02)

    def log(self) -> list[str]:
        """Return what the browser complained about since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    @contextmanager
    def width(self, pixels: int) -> Iterator[None]:
        """Have a window of a phone's size."""
        size = {"width": pixels, "height": 740, "deviceScaleFactor": 1, "mobile": True}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def prefer(self, **features: str) -> None:
        """Set what the system prefers, such as `prefers_color_scheme`."""
        found = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": found})


@contextmanager
def chromium(folder: Path) -> Iterator[webdriver.Chrome]:
    """Start a browser whose profile is a folder."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS.split(), f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    environment = {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON}
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER), env=environment))
    try:
        driver.set_script_timeout(20)
        yield driver
    finally:
        driver.quit()
