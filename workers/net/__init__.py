"""A worker's event loop and its connections."""
