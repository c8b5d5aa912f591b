"""One call that waits for the network, in a thread of its own, so that a loop need not wait; one call at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable

Outcome = bytes | Exception


class BackgroundFetch:
    """`start`, then `outcome` now and then until there is one."""

    def __init__(self, name: str, fetch: Callable[[], bytes]) -> None:
        """`name`: of the thread. `fetch` may raise OSError and ValueError."""
        self._name, self._fetch = name, fetch
        self._thread: threading.Thread | None = None
        self._outcome: Outcome = b""

    @property
    def under_way(self) -> bool:
        """Whether it was started, and its outcome was not taken yet."""
        return self._thread is not None

    def start(self) -> None:
        """Begin in a thread, which ends with the process."""
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def outcome(self) -> Outcome | None:
        """The document or the error, once; None while there is none."""
        if self._thread is None or self._thread.is_alive():
            return None
        self._thread = None
        return self._outcome

    def _run(self) -> None:
        try:
            self._outcome = self._fetch()
        except (OSError, ValueError) as error:
            self._outcome = error
        except Exception as error:  # of codecs, for example: whatever it is, the loop decides
            self._outcome = OSError(str(error) or type(error).__name__)
