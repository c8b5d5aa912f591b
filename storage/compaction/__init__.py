"""The log cleaner: a pass that maps keys to offsets, and one that copies what stays."""
