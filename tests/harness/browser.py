"""A headless Chromium, driven by its own DevTools protocol over one WebSocket: no driver program, no library.

Facts from the protocol's documentation: commands are JSON with an id, answers have the same id, events have none.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import aiohttp

from .process import die_with_parent, family, kill_all, wait_dead, wait_until

WIDTH, HEIGHT, TALLEST = 1280, 900, 1200
PICTURES = "ODRADEK_TEST_PICTURES"  # the folder for the pictures of the documents (`make picture`)
_SECONDS = 30
_KEYS = {"ArrowDown": 40, "ArrowUp": 38, "ArrowLeft": 37, "ArrowRight": 39, "Escape": 27, "Tab": 9, "Enter": 13}
_ARGUMENTS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--remote-debugging-port=0", f"--window-size={WIDTH},{HEIGHT}",
)  # fmt: skip


class Browser:
    """One page of one browser; a context manager. `faults`: what the page's scripts and its policy complained of."""

    def __init__(self, folder: Path) -> None:
        """`folder`: for its profile and its log."""
        self.faults: list[str] = []
        self._ids = itertools.count(1)
        self._loop = asyncio.new_event_loop()
        folder.mkdir(parents=True, exist_ok=True)
        port_file = folder / "DevToolsActivePort"
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                ["chromium", *_ARGUMENTS, f"--user-data-dir={folder}", "about:blank"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent,
            )  # fmt: skip
        wait_until(lambda: port_file.exists() and port_file.read_text().count("\n") > 0, _SECONDS, "Chromium listens")
        self._do(self._connect(int(port_file.read_text().split()[0])))

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        """Ask it to end, so that it removes its temporary files; kill what is left."""
        members = family(self._process.pid)
        self._do(self._socket.send_json({"id": next(self._ids), "method": "Browser.close"}))
        left = wait_dead(members, _SECONDS)
        self._do(self._session.close())
        self._loop.close()
        kill_all(left)
        self._process.wait()

    def _do(self, what: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(what, _SECONDS))

    async def _connect(self, port: int) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=_SECONDS) as response:
            pages = [one for one in json.load(response) if one["type"] == "page"]
        self._session = aiohttp.ClientSession()
        self._socket = await self._session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0)
        for domain in ("Page", "Runtime", "Log", "Accessibility"):
            await self._send(f"{domain}.enable")

    async def _send(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._ids)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            answer = await self._socket.receive_json()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Runtime.exceptionThrown":
            self.faults.append(str(event["params"]["exceptionDetails"]))
        if event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
            self.faults.append(event["params"]["entry"]["text"])

    # -- what tests do

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol; returns its result."""
        found: dict[str, Any] = self._do(self._send(method, **parameters))
        return found

    def open(self, address: str) -> None:
        """Go to an address."""
        self.command("Page.navigate", url=address)

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page. Fails if it throws."""
        found = self.command("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, script: str, what: str) -> None:
        """Wait until an expression is true; one that throws is not yet."""

        def is_true() -> bool:
            try:
                return bool(self.evaluate(f"Boolean({script})"))
            except AssertionError:  # the page is still on its way
                return False

        wait_until(is_true, _SECONDS, what)

    def text(self) -> str:
        """What the page says."""
        return str(self.evaluate("document.body.innerText"))

    def press(self, key: str) -> None:
        """Press a key: a name of _KEYS, or a character."""
        code = _KEYS.get(key)
        more: dict[str, Any] = {"text": key} if code is None else {"windowsVirtualKeyCode": code}
        if key == "Enter":
            more["text"] = "\r"
        for kind in ("keyDown", "keyUp"):
            self.command("Input.dispatchKeyEvent", type=kind, key=key, **(more if kind == "keyDown" else {}))

    def scheme(self, name: str) -> None:
        """`light` or `dark`, as the user prefers."""
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def roles(self) -> list[tuple[str, str]]:
        """Role and name of each node, as a screen reader gets them."""
        nodes = self.command("Accessibility.getFullAXTree")["nodes"]
        return [(one["role"]["value"], one.get("name", {}).get("value", "")) for one in nodes if "role" in one]

    def screenshot(self, selector: str = "html") -> bytes:
        """The page, or the first element that `selector` finds, as PNG: TALLEST of it at most, in view or not."""
        element = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        box = self.evaluate(f"(({{x, y, width, height}}) => ({{x, y, width, height}}))({element})")
        clip = {**box, "height": min(box["height"], TALLEST), "scale": 1}
        found = self.command("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(found["data"])

    def keep(self, name: str, otherwise: Path, selector: str = "html") -> None:
        """Write the screenshot as `name` to the documents' folder with PICTURES, else to `otherwise`."""
        picture = self.screenshot(selector)
        assert picture.startswith(b"\x89PNG")
        (Path(os.environ.get(PICTURES) or otherwise) / name).write_bytes(picture)
