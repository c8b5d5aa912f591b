"""What a broker needs of its operating system, in one line for those who have another one."""

MISSING = (
    "other systems do not have its epoll, open file description locks and /dev/shm; use a Linux container, "
    "or a virtual machine such as WSL"
)
