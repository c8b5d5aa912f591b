"""Bytes of a log as Arrow record batches: numpy in lockstep over many batches, nothing per record."""
