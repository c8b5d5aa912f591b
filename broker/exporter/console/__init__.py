"""The console: a page in a browser that shows a running broker, its topics, groups, settings and messages."""
