#!/bin/sh
# kafka-server-start.sh [-daemon] FILE.properties …
daemon=
[ "$1" = -daemon ] && daemon=-daemon && shift
exec "$(dirname -- "$0")/odradek-run.sh" $daemon start "$@"
