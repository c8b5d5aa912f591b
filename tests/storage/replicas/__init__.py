"""Replicas of one log, with real files, compared with one model."""
