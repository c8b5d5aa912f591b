"""Errors of brokers as Kafka's Java tools print them."""

from __future__ import annotations

from kafka import errors as kafka_errors


def java_class(code: int) -> str:
    """The Java class of an error code."""
    return f"org.apache.kafka.common.errors.{kafka_errors.for_code(code).__name__.removesuffix('Error')}Exception"


def java_error(code: int, text: str | None = None) -> str:
    """The Java class of an error code, and the broker's message or else the error's description."""
    return f"{java_class(code)}: {text or getattr(kafka_errors.for_code(code), 'description', '')}"
