"""The part of RESULTS.md on TLS."""

from __future__ import annotations

from odradek.loadtest.harness.store import Results
from odradek.loadtest.measurements.secure_rows import ROWS
from odradek.loadtest.reports.report_rows import summary, table

_TOLD = """\
The same loads over TLS 1.3 with TLS_AES_256_GCM_SHA384 and one certificate (EC, P-256) for both brokers; the clients
are those of the table above, built with OpenSSL. The kernel of this machine encrypts nothing (no kTLS). A handshake is
counted as one message.
"""


def secure_section(results: Results) -> str:
    """The table of the loads over TLS."""
    if not any(row.key in results.entries for row in ROWS):
        return ""
    names = ("Apache Kafka", "Odradek")
    return "\n\n".join(["## Over TLS", _TOLD.strip(), table(results, ROWS, names), summary(results, ROWS)])
