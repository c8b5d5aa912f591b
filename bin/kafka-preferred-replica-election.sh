#!/bin/sh
# Without --path-to-json-file, of all partitions.
case " $* " in
*" --path-to-json-file"* | *" --topic"* | *" --help"* | *" -h "*) ;;
*) set -- --all-topic-partitions "$@" ;;
esac
exec "$(dirname -- "$0")/odradek-run.sh" leader-election --election-type preferred "$@"
