#!/bin/sh
# odradek-run.sh [-daemon] COMMAND …: runs `odradek COMMAND …`, of this checkout's .venv or else of PATH.
# -daemon: in the background, with what it prints in LOG_DIR (default: logs beside bin)/COMMAND.out.
base=$(dirname -- "$0")/..
odradek=$base/.venv/bin/odradek
[ -x "$odradek" ] || odradek=$(command -v odradek) || {
    echo "${0##*/}: there is no odradek here: run make install" >&2
    exit 1
}
[ "$1" = -daemon ] || exec "$odradek" "$@"
shift
logs=${LOG_DIR:-$base/logs}
mkdir -p -- "$logs" || exit
nohup "$odradek" "$@" >"$logs/$1.out" 2>&1 </dev/null &
