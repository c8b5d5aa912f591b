"""Code that commands share: the connection to a cluster, options, codecs, tables."""
