"""Dispatch of a request's bytes to the file of its API, in whichever process serves it."""
