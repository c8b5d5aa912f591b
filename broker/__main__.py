"""`python -m odradek.broker` is `odradek`: the form the supervisor spawns its children with."""

from odradek.broker.cli import main

main()
