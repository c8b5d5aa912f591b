"""`make profile ROW=batch1`: what Odradek's processes do while one load of the bench repeats.

py-spy samples every process of the broker from outside. The collapsed stacks, from which any flame graph tool makes a
picture, go to a folder; the functions with the most samples are printed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import click
import psutil

from odradek.loadtest.harness.brokers import Broker, BrokerError, Odradek
from odradek.loadtest.harness.load_clients import LoadError
from odradek.loadtest.harness.tools import cache
from odradek.loadtest.measurements.rows import ROWS, Row, once

SHOWN = 12
RATE = 250  # samples a second
LEAST_SHARE = 0.05  # of the samples of the busiest process: a process with less is idle


def hottest(stacks: str) -> Counter[str]:
    """Samples by the function that was running, from py-spy's collapsed stacks: `a;b;c 12` a line."""
    found: Counter[str] = Counter()
    for line in stacks.splitlines():
        frames, _, count = line.rpartition(" ")
        found[frames.rpartition(";")[2]] += int(count)
    return found


def _watch(process: psutil.Process, seconds: int, out: Path) -> subprocess.Popen[bytes]:
    spy = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or "py-spy"
    words = [spy, "record", "-p", str(process.pid), "-d", str(seconds), "-r", str(RATE), "-f", "raw", "-o", str(out)]
    try:
        return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except FileNotFoundError:
        raise BrokerError("py-spy is missing: pip install py-spy") from None


def _name(process: psutil.Process) -> str:
    words = process.cmdline()
    at = words.index("run") if "run" in words else -2
    more = words[at + 3 : at + 4] if "--id" in words else []
    return "-".join([words[at + 1] if at >= 0 else "supervisor", *more, str(process.pid)])


def profile(row: Row, broker: Broker, seconds: int, out: Path) -> dict[str, Counter[str]]:
    """Repeat `row` until py-spy has sampled for `seconds`; returns samples by function for each process."""
    once(row, broker, 0.2)  # files are open, topics filled
    out.mkdir(parents=True, exist_ok=True)
    files = {_name(one): (one, out / f"{row.key}-{_name(one)}.txt") for one in broker.family()}
    spies = [_watch(one, seconds, path) for one, path in files.values()]
    while any(spy.poll() is None for spy in spies):
        once(row, broker, 1)
    return {name: hottest(path.read_text()) for name, (_, path) in files.items() if path.exists()}


@click.command()
@click.argument("key", type=click.Choice([row.key for row in ROWS]))
@click.option("--seconds", default=10, show_default=True, help="How many seconds to sample.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the stacks (default: profile/ in the cache).")
def main(key: str, seconds: int, out: Path | None) -> None:
    """Show where the processes spend their time in row KEY of the bench."""
    row = next(one for one in ROWS if one.key == key)
    with tempfile.TemporaryDirectory(prefix="odradek-profile-") as room:
        try:
            with Odradek(Path(room) / "odradek") as broker:
                broker.start()
                found = profile(row, broker, seconds, out or cache() / "profile")
        except (BrokerError, LoadError) as error:
            click.echo(f"profile: {error}", err=True)
            sys.exit(1)
    show(found)


def show(found: dict[str, Counter[str]]) -> None:
    """Print the busy processes' functions, the busiest first."""
    most = max((samples.total() for samples in found.values()), default=0)
    for name, samples in sorted(found.items(), key=lambda one: -one[1].total()):
        if samples.total() > LEAST_SHARE * most:
            click.echo(f"{name}: {samples.total()} samples")
            for function, count in samples.most_common(SHOWN):
                click.echo(f"  {count / samples.total():6.1%}  {function}")


if __name__ == "__main__":
    main()
