"""Bad input against a live broker: a clear error for whoever sent it, and nobody else pays."""
