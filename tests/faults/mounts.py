"""File systems of a test, in a mount namespace that ends with the test."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ..harness.needs import skip
from ..harness.process import die_with_parent


class Mounts:
    """A namespace in which each of `sizes` (path → MiB) is a tmpfs of that size. Close it."""

    def __init__(self, sizes: dict[Path, int]) -> None:
        steps = [f"mount -t tmpfs -o size={size}m none '{path}'" for path, size in sizes.items()]
        script = " && ".join([*steps, "echo mounted", "exec sleep infinity"])
        words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
        self._holder = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=die_with_parent
        )
        assert self._holder.stdout is not None
        said = self._holder.stdout.readline()
        if said != b"mounted\n":
            self.close()
            skip(f"no mounts here: {said.decode().strip()}")

    @property
    def prefix(self) -> list[str]:
        """Words before a command that runs in the namespace."""
        return ["nsenter", "--mount", f"--target={self._holder.pid}", "--"]

    def path(self, inside: Path) -> Path:
        """The path of `inside` outside of the namespace."""
        return Path(f"/proc/{self._holder.pid}/root{inside}")

    def close(self) -> None:
        """End the namespace; the kernel drops its file systems with the last process in it."""
        self._holder.kill()
        self._holder.wait()
