"""A page in a real headless Chromium that takes keys, other screens, and pictures.

It speaks the browser's DevTools protocol over two pipes, so that nothing needs to be installed.
"""

import base64
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.browser import FLAGS, browser

KEYS = {"ArrowRight": 39, "ArrowLeft": 37, "ArrowDown": 40, "Tab": 9, "Space": 32, "Enter": 13}
# The browser reads the protocol from file 3 and writes it to file 4.
START = "import os, sys; os.dup2({}, 3); os.dup2({}, 4); os.execv(sys.argv[1], sys.argv[1:])"
TEXTS = {"Space": " ", "Enter": "\r"}


class Page:
    """An open page; `trouble` has errors of its scripts, and what it tried to load."""

    def __init__(self, ask: Callable, target: str):
        self._ask, self.trouble = ask, []
        self._session = ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self(f"{domain}.enable")

    def __call__(self, method: str, **params: Any) -> Any:
        return self._ask(method, self._session, self._hear, **params)

    def _hear(self, event: dict) -> None:
        params = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            self.trouble.append(f"error: {params['exceptionDetails']}")
        elif event["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.trouble.append(f"error: {params['entry']['text']}")
        elif event["method"] == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith(("file:", "data:")):
                self.trouble.append(f"asked for: {url}")

    def run(self, code: str) -> Any:
        """Returns the value of a JavaScript expression, a promise awaited."""
        done = self("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            raise AssertionError(done["exceptionDetails"])
        return done["result"].get("value")

    def until(self, code: str, seconds: float = 20.0) -> None:
        """Waits until a JavaScript expression is true."""
        end = time.monotonic() + seconds
        while not self.run(code):
            if time.monotonic() > end:
                raise AssertionError(f"not true after {seconds} s: {code}")
            time.sleep(0.02)

    def press(self, key: str) -> None:
        """Presses a key of the keyboard."""
        text = {"text": TEXTS[key]} if key in TEXTS else {}
        shared = {"key": TEXTS.get(key, key), "code": key, "windowsVirtualKeyCode": KEYS[key]}
        self("Input.dispatchKeyEvent", type="keyDown", **shared, **text)
        self("Input.dispatchKeyEvent", type="keyUp", **shared)

    def screen(self, width: int, height: int, dark: bool = False) -> None:
        """Changes the size of the screen, and the colours that its user prefers."""
        phone = width < 600
        self("Emulation.setDeviceMetricsOverride", width=width, height=height,
             deviceScaleFactor=1, mobile=phone)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path | None = None) -> bytes:
        """Returns the whole page as PNG, and writes it to `path`."""
        done = self("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        png = base64.b64decode(done["data"])
        if path is not None:
            path.write_bytes(png)
        return png


@contextmanager
def opened(url: str, profile: Path):
    """Opens a page in a browser of its own, and ends the browser afterwards."""
    to_browser, from_us = os.pipe()
    to_us, from_browser = os.pipe()
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_browser, from_browser)]
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", START.format(*ends), browser(), *FLAGS,
         f"--user-data-dir={profile}", "--remote-debugging-pipe"],
        pass_fds=ends, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    for end in (to_browser, from_browser, *ends):
        os.close(end)
    try:
        with open(from_us, "wb", buffering=0) as out, open(to_us, "rb") as back:
            ask = _asker(out, back)
            target = ask("Target.createTarget", url="about:blank")["targetId"]
            page = Page(ask, target)
            page("Page.navigate", url=url)
            page.until("document.readyState === 'complete'")
            yield page
    finally:
        process.kill()
        process.wait()


def _asker(out, back) -> Callable:
    number, rest = 0, b""

    def ask(method: str, session: str | None = None, hear=lambda event: None, **params) -> Any:
        nonlocal number, rest
        number += 1
        question = {"id": number, "method": method, "params": params}
        question |= {"sessionId": session} if session else {}
        out.write(json.dumps(question).encode() + b"\0")
        while True:
            while b"\0" not in rest:
                chunk = back.read1(1 << 20)
                if not chunk:
                    raise AssertionError("the browser has ended")
                rest += chunk
            text, rest = rest.split(b"\0", 1)
            told = json.loads(text)
            if told.get("id") == number:
                if "error" in told:
                    raise AssertionError(told["error"])
                return told["result"]
            if "method" in told:
                hear(told)

    return ask
