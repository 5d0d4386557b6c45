"""A real browser for the pages: Debian's chromium, driven over WebDriver on loopback. Standard library only."""

import base64
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.request import ProxyHandler, Request, build_opener

__all__ = ["Browser", "browser", "installed"]

_ARGUMENTS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
_START_SECONDS: Final = 60
_LOOPBACK: Final = build_opener(ProxyHandler({}))  # never through a proxy


def installed() -> bool:
    """Whether there is a browser and what drives it."""
    return all(map(shutil.which, ("chromium", "chromedriver")))


@contextmanager
def browser(folder: Path) -> Iterator["Browser"]:
    """Start a browser with an empty profile below a folder, and end it afterwards."""
    told = folder / "chromedriver.log"
    # in a group of its own: what the driver has started ends with it, also after a failure
    with told.open("wb") as log:
        driver = subprocess.Popen(
            [str(shutil.which("chromedriver")), "--port=0"], stdout=log, stderr=log, process_group=0
        )
    try:
        with Browser(_address(driver, told), folder / "profile") as started:
            yield started
    finally:
        os.killpg(driver.pid, 15)
        driver.wait(timeout=_START_SECONDS)


def _address(driver: "subprocess.Popen[bytes]", told: Path) -> str:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and driver.poll() is None:
        found = re.search(r"started successfully on port (\d+)", told.read_text())
        if found:
            return f"http://127.0.0.1:{found[1]}"
        time.sleep(0.05)
    raise RuntimeError(f"chromedriver did not start: {told.read_text()}")


class Browser:
    """One window."""

    def __init__(self, address: str, profile: Path) -> None:
        options = {"args": [*_ARGUMENTS, f"--user-data-dir={profile}"], "binary": shutil.which("chromium")}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self._session = f"{address}/session"
        self._session += f"/{self._post('', capabilities={'alwaysMatch': wanted})['sessionId']}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._send(Request(self._session, method="DELETE"))  # noqa: S310 - loopback

    def open(self, page: Path, *, width: int, height: int, dark: bool = False) -> None:
        """Show a page in a window of that many CSS pixels, as a phone does if it is narrow; wait until it is drawn."""
        phone = width < 600
        self._devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2, mobile=phone
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._devtools("Emulation.setEmulatedMedia", features=[scheme])
        self._post("/url", url=page.resolve().as_uri())
        draws = "document.querySelector('.chart') && [...document.scripts].some(e => !e.type)"
        self.wait_for(f"!({draws}) || document.documentElement.dataset.drawn")

    def evaluate(self, expression: str) -> Any:
        """What an expression of JavaScript gives."""
        return self._post("/execute/sync", script=f"return {expression}", args=[])

    def press_enter(self) -> None:
        """Press and release the key on what has the focus."""
        for kind in ("keyDown", "keyUp"):
            self._devtools(
                "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r", windowsVirtualKeyCode=13
            )

    def wait_for(self, expression: str) -> Any:
        """What an expression gives, once that is true, or after a while."""
        deadline = time.monotonic() + _START_SECONDS
        while not (found := self.evaluate(expression)) and time.monotonic() < deadline:
            time.sleep(0.02)
        return found

    def complaints(self) -> list[str]:
        """What the page has written to the console since this was asked last."""
        return [entry["message"] for entry in self._post("/se/log", type="browser")]

    def screenshot(self, path: Path) -> None:
        """Draw the whole page, also what is below the window."""
        size = self._devtools("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        drawn = self._devtools("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(drawn["data"]))

    def downloaded(self, link: str, folder: Path) -> Path:
        """Follow the one link that a selector finds, and wait for the file that it leaves in an empty folder."""
        self._devtools("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
        self.evaluate(f"document.querySelector({json.dumps(link)}).click()")
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            there = [path for path in folder.iterdir() if path.suffix == ".csv"]
            if there:
                return there[0]
            time.sleep(0.02)
        raise TimeoutError(f"nothing came from {link}")

    def pdf(self) -> bytes:
        """Print the page on A4."""
        printed = self._devtools("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=False)
        return base64.b64decode(printed["data"])

    def _devtools(self, command: str, **parameters: object) -> Any:
        return self._post("/goog/cdp/execute", cmd=command, params=parameters)

    def _post(self, path: str, **body: object) -> Any:
        data = json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        return self._send(Request(self._session + path, data, headers, method="POST"))  # noqa: S310 - loopback

    def _send(self, request: Request) -> Any:
        with _LOOPBACK.open(request, timeout=_START_SECONDS) as answer:
            return json.load(answer)["value"]
