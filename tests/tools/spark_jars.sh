#!/usr/bin/env bash
# Fetch Spark's Kafka connector and what it needs by Maven coordinates into $ODRADEK_TEST_CACHE (else .cache)/spark-4.0.
# usage: tests/tools/spark_jars.sh    Jars that are there are left alone; a broken download leaves nothing.
# Each is taken alone: the parent description names a mirror that is not always there, and the rest is in PySpark.
set -euo pipefail
cache=${ODRADEK_TEST_CACHE:-$(cd "$(dirname "$0")/../.." && pwd)/.cache}
home=$cache/spark-4.0

coordinates=(
    org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0
    org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0
    org.apache.kafka:kafka-clients:3.9.1
    org.apache.commons:commons-pool2:2.12.1
)

fetch() { # group:artifact:version
    local artifact version name room
    IFS=: read -r _ artifact version <<< "$1"
    name=$artifact-$version.jar
    [ -e "$home/$name" ] && return
    command -v mvn > /dev/null || { echo "spark_jars.sh: no mvn here: apt-get install maven" >&2; return 1; }
    mkdir -p "$home"
    room=$(mktemp -d "$home/fetch.XXXXXX")
    echo "fetching $name"
    (cd "$room" && mvn -q -B dependency:get dependency:copy -Dartifact="$1" -Dtransitive=false -DoutputDirectory=.) ||
        { rm -rf "$room"; return 1; }
    mv "$room/$name" "$home/$name"
    rm -rf "$room"
}

for coordinate in "${coordinates[@]}"; do fetch "$coordinate"; done
