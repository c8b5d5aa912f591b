#!/bin/sh
exec "$(dirname -- "$0")/odradek-run.sh" simple-consumer-shell "$@"
