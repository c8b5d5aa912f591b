"""`python -m odradek.broker` runs `odradek`; the supervisor spawns its children in this form."""

from odradek.broker.cli import main

main()
