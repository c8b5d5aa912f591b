#!/bin/sh
exec "$(dirname -- "$0")/odradek-run.sh" replay-log-producer "$@"
