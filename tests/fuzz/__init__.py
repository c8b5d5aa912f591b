"""Bad input against a live broker: a clear error for its sender, and no effect on other clients."""
