#!/bin/sh
# kafka-run-class.sh [-daemon] CLASS …
daemon=
[ "$1" = -daemon ] && daemon=-daemon && shift
exec "$(dirname -- "$0")/odradek-run.sh" $daemon run-class "$@"
