"""Topics to Parquet, by topic and hour, each record once.

manifest     which files an archive consists of, and up to which offsets: a fold over its commits
command      `odradek pipeline archive`
"""
