#!/usr/bin/env bash
# Fetch by Maven coordinates into $ODRADEK_TEST_CACHE (else .cache): Spark's Kafka connector and what it needs, and HDFS.
# usage: tests/tools/maven_jars.sh    Jars that are there are left alone; a broken download leaves nothing.
# Each is taken alone: the parent description names a mirror that is not always there, and the rest is in PySpark.
set -euo pipefail
cache=${ODRADEK_TEST_CACHE:-$(cd "$(dirname "$0")/../.." && pwd)/.cache}

spark=(
    org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0
    org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0
    org.apache.kafka:kafka-clients:3.9.1
    org.apache.commons:commons-pool2:2.12.1
)
hadoop=(org.apache.hadoop:hadoop-client-minicluster:3.5.0) # of the version in PySpark; has the servers as well

fetch() { # folder group:artifact:version
    local artifact version name room
    IFS=: read -r _ artifact version <<< "$2"
    name=$artifact-$version.jar
    [ -e "$1/$name" ] && return
    command -v mvn > /dev/null || { echo "maven_jars.sh: no mvn here: apt-get install maven" >&2; return 1; }
    mkdir -p "$1"
    room=$(mktemp -d "$1/fetch.XXXXXX")
    echo "fetching $name"
    (cd "$room" && mvn -q -B dependency:get dependency:copy -Dartifact="$2" -Dtransitive=false -DoutputDirectory=.) ||
        { rm -rf "$room"; return 1; }
    mv "$room/$name" "$1/$name"
    rm -rf "$room"
}

for coordinate in "${spark[@]}"; do fetch "$cache/spark-4.2" "$coordinate"; done
for coordinate in "${hadoop[@]}"; do fetch "$cache/hadoop-3.5" "$coordinate"; done
