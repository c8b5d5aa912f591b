"""Log bytes to Arrow record batches: numpy works on many batches in lockstep, with no step for each record."""
