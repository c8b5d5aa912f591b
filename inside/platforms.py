"""The line that says on other operating systems what a broker needs of Linux."""

MISSING = (
    "other systems do not have its epoll, open file description locks and /dev/shm; use a Linux container, "
    "or a virtual machine such as WSL"
)
