"""Named points at which a process of a broker under test ends itself, or stops. No line of this is in the broker.

A broker started with `environment(file)` imports `sitecustomize` from here (Python does, before anything else), which
wraps system calls and a few methods in every process of that broker. `Arming` says over a shared file which point is
to go off, at which hit.
"""
