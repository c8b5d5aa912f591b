"""What a log remembers of its producers, as rebuilt from batches and as files keep it."""
