"""Every config key: types, defaults, checks, and rules between them."""
