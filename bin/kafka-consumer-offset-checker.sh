#!/bin/sh
exec "$(dirname -- "$0")/odradek-run.sh" consumer-offset-checker "$@"
