"""Names of files, small text files, writes that a power failure cannot halve, errors of disks."""
