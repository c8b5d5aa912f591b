"""The broker's units for systemd, and what writes them where systemd looks.

`units/` holds them as they are read; `@NAME@` stands for what differs between machines (units.py).
"""
