"""The broker's systemd units, and the code that installs them.

`units/` holds the templates; `@NAME@` stands for values that differ between machines (units.py).
"""
