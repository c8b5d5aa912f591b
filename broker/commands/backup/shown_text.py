"""Names in lines for a terminal: names of groups and users may have control characters."""

from __future__ import annotations

from odradek.broker.commands.backup.saved_cluster import ALL_BROKERS


def shown(text: str) -> str:
    """The text itself, or with escapes where it cannot be printed."""
    return text if text and text.isprintable() else repr(text)


def shown_broker(name: str) -> str:
    """The broker of this id, or all, whose default has the name ALL_BROKERS."""
    return "all brokers" if name == ALL_BROKERS else f"broker {name}"
