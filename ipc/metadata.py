"""What the controller publishes to every process: the metadata snapshot (topics, brokers, configs), and the security
metadata (ACLs, users, quotas, tokens). One region for each version.

Layout    : region `meta-<version>` or `security-<version>`: word 0 length, then the blob. The current version of each
            is a word of the control region.
Owner     : the controller.
Writers   : the controller only: it fills a new region, then stores the version word (order: ipc.memory_order).
Lock      : none. A reader that finds its region gone reads the version word again.
Crash rule: a death before the version word is stored leaves a region that the next publisher of that version replaces.
The region before the current one is kept, so that a reader between the two steps usually finds it.
"""

from __future__ import annotations

import contextlib
import os

from odradek.ipc import memory_order
from odradek.ipc.region import Region, RegionError, unlink

_KIND = "metadata"
_SPARE = 2  # descriptors that attaching a region needs briefly


class MetadataRegion:
    """The current blob of one kind (`meta`, `security`), by its version word `words[at]`."""

    def __init__(self, prefix: str, incarnation: int, words: memoryview, at: int, kind: str = "meta") -> None:
        self._prefix = f"{prefix}{kind}-"
        self._incarnation = incarnation
        self._words = words
        self._at = at
        self._spare: list[int] = []

    def __del__(self) -> None:
        for fd in self._spare:
            os.close(fd)

    @property
    def version(self) -> int:
        """The current version; 0 before the first. Cheap: compare it once for each batch of events."""
        return self._words[self._at]

    def _name(self, version: int) -> str:
        return f"{self._prefix}{version}"

    def publish(self, version: int, blob: bytes) -> None:
        """Make `blob` the snapshot `version`, which must be above the current one. Only the controller calls it."""
        size = 8 + (len(blob) + 7) // 8 * 8
        region = Region.create(self._name(version), size, _KIND, self._incarnation)
        region.buf[8 : 8 + len(blob)] = blob
        region.words[0] = len(blob)
        region.close()
        memory_order.ordered()
        former = self._words[self._at]
        self._words[self._at] = version
        unlink(self._name(former - 1))

    def _attach(self, version: int) -> Region:
        """Attach, with the spare descriptors if no others are left: without metadata the process would have to die."""
        try:
            return Region.attach(self._name(version), _KIND)
        except OSError:
            if not self._spare:
                raise
        while self._spare:
            os.close(self._spare.pop())
        return Region.attach(self._name(version), _KIND)

    def _keep_spare(self) -> None:
        with contextlib.suppress(OSError):  # still no free descriptors: the next version tries again
            while len(self._spare) < _SPARE:
                self._spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def read(self) -> tuple[int, bytes]:
        """(version, blob) of the current snapshot; (0, b"") before the first."""
        while version := self.version:
            try:
                region = self._attach(version)
            except RegionError:
                if self.version == version:
                    raise
                continue
            blob = bytes(region.buf[8 : 8 + region.words[0]])
            region.close()
            self._keep_spare()
            return version, blob
        return 0, b""
