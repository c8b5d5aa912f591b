"""What tests share: a real broker in a subprocess, a raw protocol connection, other people's tools."""
