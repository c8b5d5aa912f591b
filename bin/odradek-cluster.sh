#!/bin/sh
# odradek-cluster.sh: ZooKeeper and the three brokers of config/server*.properties, until Ctrl-C or one of them ends.
# Each is in a session of its own, so that Ctrl-C comes here alone: brokers sign off from ZooKeeper, so they end first.
cd -- "$(dirname -- "$0")/.." || exit
run=bin/odradek-run.sh
logs=${LOG_DIR:-logs}
brokers=

finish() {
    trap '' INT TERM HUP
    [ -z "$brokers" ] || kill $brokers
    wait $brokers
    kill "$zookeeper"
    wait "$zookeeper"
    exit "$1"
} 2>/dev/null

mkdir -p -- "$logs" || exit
setsid "$run" zookeeper-server-start config/zookeeper.properties >"$logs/zookeeper.out" &
zookeeper=$!
trap 'finish 0' INT TERM HUP

address=localhost:$(sed -n 's/^clientPort=//p' config/zookeeper.properties)
until timeout --foreground 5 "$run" topics --list --zookeeper "$address" >/dev/null 2>&1; do
    kill -0 "$zookeeper" 2>/dev/null || finish 1
done
for properties in config/server.properties config/server-1.properties config/server-2.properties; do
    setsid "$run" start "$properties" &
    brokers="$brokers $!"
done
while kill -0 "$zookeeper" $brokers 2>/dev/null; do
    sleep 1
done
finish 1
