"""A partition's log in use: appends, reads, rolls, trims and truncations under the partition's lock."""
