"""The exporter process."""
