"""The terminal of `odradek top`: prompt_toolkit draws the lines of a View and gives it keys."""

from __future__ import annotations

import asyncio

from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import FormattedTextControl, Layout, Window
from prompt_toolkit.styles import Style

from odradek.broker.commands.top import screen
from odradek.broker.commands.top.sampler import Sampler
from odradek.broker.commands.top.screen import Shown, View

_STYLE = Style.from_dict(
    {"good": "ansigreen", "bad": "bold ansired", "warn": "bold ansiyellow", "head": "reverse", "cursor": "underline"}
)
_NAMES = {Keys.ControlM: "enter", Keys.ControlH: "backspace", Keys.ControlI: "tab"}


def show(sampler: Sampler, interval: float) -> None:
    """Show the broker until the user quits."""
    asyncio.run(_Terminal(sampler, interval).run())


class _Terminal:
    def __init__(self, sampler: Sampler, interval: float) -> None:
        self._sampler, self._interval = sampler, interval
        self._view = View()
        self._shown: Shown = sampler.take(self._view.tab)
        self._wake = asyncio.Event()
        bindings = KeyBindings()
        bindings.add(Keys.Any)(self._press)
        for key in ("up", "down", "pageup", "pagedown", "home", "end", "tab", "enter", "escape", "backspace", "c-c"):
            bindings.add(key, eager=key == "escape")(self._press)
        window = Window(FormattedTextControl(self._text, show_cursor=False), always_hide_cursor=True)
        self._app: Application[None] = Application(
            Layout(window), key_bindings=bindings, style=_STYLE, full_screen=True, min_redraw_interval=0.05
        )

    async def run(self) -> None:
        """Draw until the user quits."""
        refreshing = asyncio.create_task(self._refresh())
        try:
            await self._app.run_async()
        finally:
            refreshing.cancel()

    async def _refresh(self) -> None:
        """Take a sample in a thread, so that keys do not wait; at once after a change of the view."""
        while True:
            try:
                await asyncio.wait_for(self._wake.wait(), self._interval)
            except TimeoutError:
                pass
            self._wake.clear()
            if not self._view.is_paused:
                self._shown = await asyncio.to_thread(self._sampler.take, self._view.tab)
                self._app.invalidate()

    def _press(self, event: KeyPressEvent) -> None:
        pressed = event.key_sequence[0].key
        key = _NAMES.get(pressed, pressed.value) if isinstance(pressed, Keys) else pressed
        tab = self._view.tab
        self._view.press(key, self._shown, max(1, self._size()[1] - screen.FRAME))
        if self._view.has_ended:
            event.app.exit()
        elif self._view.tab != tab:
            self._wake.set()

    def _size(self) -> tuple[int, int]:
        size = self._app.output.get_size()
        return size.columns, size.rows

    def _text(self) -> StyleAndTextTuples:
        lines = screen.lines(self._view, self._shown, *self._size())
        styled: StyleAndTextTuples = [(_class(one.style), f"{one.text}\n") for one in lines[:-1]]
        return [*styled, (_class(lines[-1].style), lines[-1].text)]


def _class(style: str) -> str:
    return style if style in ("", screen.BOLD) else f"class:{style}"
