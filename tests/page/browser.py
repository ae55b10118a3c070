"""Chromium without a screen, driven over WebDriver, with an empty profile of its own."""

import shutil
import tempfile
import time

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
PATIENCE_S = 30


class Browser:
    """One browser with one window; ends with its `with` block."""

    def __init__(self, width=1280, height=900, dark=False):
        self.width = width
        self.profile = tempfile.mkdtemp(prefix="terrace-page-")
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for flag in [*FLAGS, f"--user-data-dir={self.profile}"]:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        try:
            self.driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        except BaseException:
            shutil.rmtree(self.profile, ignore_errors=True)
            raise
        self.resize(height)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})

    def resize(self, height):
        size = {"width": self.width, "height": height, "deviceScaleFactor": 1, "mobile": self.width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def open(self, url):
        self.driver.get(url)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0])?.textContent ?? null", selector)

    def wait(self, what, look):
        """What `look` returns once it is neither None nor False."""
        end = time.monotonic() + PATIENCE_S
        while True:
            found = look()
            if found is not None and found is not False:
                return found
            if time.monotonic() > end:
                raise AssertionError(f"{what}: not within {PATIENCE_S} s; the page says: {self.text('body')[:2000]}")
            time.sleep(0.1)

    def wait_for_figures(self):
        """Until the stream has told something."""
        self.wait("figures", lambda: "Up " in (self.text("#uptime") or ""))

    def complaints(self):
        """What the console has told since the last time."""
        return [f"{line['level']}: {line['message']}" for line in self.driver.get_log("browser")]

    def screenshot(self, file, last="html"):
        """The page, however long, down to the end of one element."""
        self.resize(self.run("return Math.ceil(document.querySelector(arguments[0]).getBoundingClientRect().bottom + scrollY) + 8", last))
        time.sleep(0.5)
        self.driver.save_screenshot(file)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.driver.quit()
        shutil.rmtree(self.profile, ignore_errors=True)
