"""The metadata tree: its interface, its two stores (ZooKeeper and embedded) and its layout."""
