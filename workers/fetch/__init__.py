"""The way of a fetch: sessions, repeated requests, waiting, and followers."""
