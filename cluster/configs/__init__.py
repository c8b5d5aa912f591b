"""All config keys: types, defaults, checks, and rules between them."""
