"""Transactions (KIP-98, KIP-360): pure state machines; the coordinator process feeds them."""
