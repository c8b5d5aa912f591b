"""RESULTS.md: medians of the rounds, part by part."""
