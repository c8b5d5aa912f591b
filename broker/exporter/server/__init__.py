"""The exporter process itself: it serves what the rooms beside it make."""
