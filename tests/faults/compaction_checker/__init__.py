"""What a compacted topic keeps while processes are killed, beside a ledger of what was written."""
