"""A headless browser that measures a page and reports its errors, by the debugging protocol."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE = 60.0
"""Seconds after which a test gives up waiting for the browser."""

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)


@dataclass(frozen=True)
class Look:
    """A page as a browser shows it."""

    scroll_width: int
    """How wide the page is."""
    inner_width: int
    """How wide the window is."""
    beyond: list[str]
    """Elements that reach beyond the window, except those within a box that scrolls."""
    messages: list[str]
    """Messages of the browser about the page: console, errors, violations of its policy."""
    requests: list[str]
    """Requests besides that for the page itself."""


MEASURE = """JSON.stringify([document.documentElement.scrollWidth, innerWidth,
  [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1
    && !e.closest('.box')).map(e => e.tagName)])"""


def look_at(pages: Sequence[Path], width: int, profile: Path) -> list[Look]:
    """Open pages in windows of that width; `profile` becomes a folder for the browser."""
    profile.mkdir(parents=True)
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return asyncio.run(asyncio.wait_for(_look_at_all(pages, width, _address(browser, profile)), PATIENCE))
    finally:
        browser.kill()
        browser.wait()


def _address(browser: "subprocess.Popen[bytes]", profile: Path) -> str:
    """Wait for the address of the browser's debugger."""
    file, give_up = profile / "DevToolsActivePort", monotonic() + PATIENCE
    while not (file.is_file() and len(file.read_text().splitlines()) == 2):
        assert browser.poll() is None, f"the browser ended with {browser.poll()}"
        assert monotonic() < give_up, "the browser does not start"
        sleep(0.05)
    port, path = file.read_text().splitlines()
    return f"ws://127.0.0.1:{port}{path}"


class _Session:
    """One tab."""

    def __init__(self, socket: Any) -> None:
        self._socket, self._number, self.session = socket, 0, None
        self.events: list[dict[str, Any]] = []

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        number, call = self._number, {"method": method, "params": parameters}
        await self._socket.write_message(
            json.dumps(call | {"id": number} | ({"sessionId": self.session} if self.session else {}))
        )
        while (answer := await self._next()).get("id") != number:
            self.events.append(answer)
        assert "error" not in answer, answer
        result = answer["result"]
        assert isinstance(result, dict)
        return result

    async def wait_for(self, method: str) -> None:
        while not any(event.get("method") == method for event in self.events):
            self.events.append(await self._next())

    async def _next(self) -> dict[str, Any]:
        message = json.loads(await self._socket.read_message())
        assert isinstance(message, dict)
        return message


async def _look_at_all(pages: Sequence[Path], width: int, address: str) -> list[Look]:
    from tornado.websocket import websocket_connect

    socket = await websocket_connect(address, max_message_size=2**26)
    looks = [await _look(page, width, _Session(socket)) for page in pages]
    socket.close()
    while await socket.read_message() is not None:
        pass
    return looks


async def _look(page: Path, width: int, tab: _Session) -> Look:
    target = await tab.ask("Target.createTarget", url="about:blank")
    attached = await tab.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
    tab.session = attached["sessionId"]
    for domain in ("Page", "Runtime", "Log", "Network"):
        await tab.ask(f"{domain}.enable")
    await tab.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    await tab.ask("Page.navigate", url=page.as_uri())
    await tab.wait_for("Page.loadEventFired")
    measured = await tab.ask("Runtime.evaluate", expression=MEASURE)
    scroll_width, inner_width, beyond = json.loads(measured["result"]["value"])
    methods = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
    messages = [json.dumps(event["params"]) for event in tab.events if event.get("method") in methods]
    urls = [e["params"]["request"]["url"] for e in tab.events if e.get("method") == "Network.requestWillBeSent"]
    return Look(scroll_width, inner_width, beyond, messages, [url for url in urls if url != page.as_uri()])
