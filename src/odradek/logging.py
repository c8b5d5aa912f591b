"""A handler for Python's `logging` that sends records to a topic; docs/logging.md describes it.

The code is in `odradek.loghandler`: a top folder of the repository named `logging` would hide Python's own module from
every program that starts there.
"""

from odradek.loghandler.handler import KafkaHandler
from odradek.loghandler.json_formatter import JsonFormatter

__all__ = ["JsonFormatter", "KafkaHandler"]
