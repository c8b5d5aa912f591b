"""Why a value is not shown as asked."""

from __future__ import annotations


class NotAvro(Exception):
    """Why a key or a value is not shown as Avro; one line."""
