"""Install packages into the environment of this Python: `python .ci/install.py ARGUMENTS`, those of `pip install`.

uv installs them, in a quarter of pip's CPU time. pip does where uv cannot be had or fails, and where its configuration
has a setting that uv does not know: uv does not read it, and must not ask another index than it names.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
UV_LOCK = Path(__file__).parents[1] / "requirements-uv.lock"
LEAST_UV = [0, 4, 23]
SECTIONS = ("global", "install", ":env:")  # of pip's configuration, the strongest last
# By pip's settings: the variables of uv that mean the same.
VARIABLES = {
    "cert": "SSL_CERT_FILE",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "proxy": "ALL_PROXY",
    "retries": "UV_HTTP_RETRIES",
    "timeout": "UV_HTTP_TIMEOUT",
}
# Settings that change nothing of what is installed.
HARMLESS = {
    "cache-dir",
    "config-file",
    "disable-pip-version-check",
    "no-cache-dir",
    "no-color",
    "progress-bar",
    "quiet",
    "root-user-action",
}


def main(arguments: list[str]) -> int:
    settings = pip_settings()
    if settings.keys() <= VARIABLES.keys() | HARMLESS and (uv := find_uv()):
        if install_by_uv(uv, settings, arguments) == 0:
            return 0
        print("odradek: uv does not install these packages, for the reason above: pip does", file=sys.stderr)
    return subprocess.call([*PIP, "--quiet", "install", *arguments])


def pip_settings() -> dict[str, str]:
    """The settings of `pip install` by name: those of all commands, its own, and variables; the last one goes."""
    printed = subprocess.check_output([*PIP, "config", "list"], text=True).splitlines()
    sections: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for name, _, value in (line.partition("=") for line in printed):
        section, _, key = name.rpartition(".")
        if section in sections and (given := ast.literal_eval(value)):
            sections[section][key] = given
    return {key: value for section in SECTIONS for key, value in sections[section].items()}


def find_uv() -> str | None:
    """A uv on the path, or the locked one, which pip puts beside this Python; None where this machine has none."""
    beside = str(Path(sys.executable).parent)
    if (found := shutil.which("uv")) and is_known(found):
        return found
    if not shutil.which("uv", path=beside):
        subprocess.call([*PIP, "--quiet", "install", "--only-binary", ":all:", "--requirement", str(UV_LOCK)])
    return shutil.which("uv", path=beside)


def is_known(uv: str) -> bool:
    """Whether it knows the variables of indexes: an older one would ask another index."""
    printed = subprocess.run([uv, "--version"], capture_output=True, text=True).stdout
    return [int(number) for number in re.findall(r"\d+", printed)[:3]] >= LEAST_UV


def install_by_uv(uv: str, settings: dict[str, str], arguments: list[str]) -> int:
    """The status of `uv pip install` with `arguments`. It copies: uv's cache stays as it is when a file is edited."""
    known = {VARIABLES[name]: in_uv(name, value) for name, value in settings.items() if name in VARIABLES}
    command = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--compile-bytecode", "--link-mode", "copy"]
    return subprocess.call([*command, *arguments], env={**known, **os.environ})


def in_uv(name: str, value: str) -> str:
    """A value of pip as uv writes it: pip has spaces or newlines in lists, and folders may be missing."""
    if name != "find-links":
        return " ".join(value.split())
    return ",".join(place for place in value.split() if ":" in place or Path(place).exists())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
