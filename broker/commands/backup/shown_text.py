"""Names of others in lines for a terminal: names of groups and users may have control characters."""

from __future__ import annotations


def shown(text: str) -> str:
    """The text itself, or with escapes where it cannot be printed."""
    return text if text and text.isprintable() else repr(text)
