"""The fetch path: sessions, repeated requests, delayed fetches, and follower fetches."""
