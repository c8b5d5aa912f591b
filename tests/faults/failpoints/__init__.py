"""Named points at which a process of a broker under test ends or stops itself. The broker has no code for them.

A broker started with `environment(file)` imports `sitecustomize` from here (Python does, before anything else), which
wraps system calls and a few methods in every process of that broker. `Arming` selects, in a shared file, the
point that fires, and at which hit.
"""
