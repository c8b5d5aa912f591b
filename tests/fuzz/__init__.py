"""Bad input to a live broker causes a clear error for its sender, and does not affect other clients."""
