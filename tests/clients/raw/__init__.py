"""Hand-made requests and record bytes that no well-behaved client sends."""
