#!/usr/bin/env bash
# Fetch all jars of Apache Kafka by Maven coordinates into $ODRADEK_TEST_CACHE (else .cache)/kafka-VERSION/libs.
# usage: tests/tools/kafka_jars.sh VERSION…    Done versions are left alone; a broken download leaves nothing.
set -euo pipefail
cache=${ODRADEK_TEST_CACHE:-$(cd "$(dirname "$0")/../.." && pwd)/.cache}

pom() {
    cat <<EOF
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>odradek</groupId><artifactId>kafka-jars</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$1</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>$1</version></dependency>
  </dependencies>
</project>
EOF
}

fetch() {
    local home=$cache/kafka-$1 room
    [ -e "$home/libs/kafka_2.13-$1.jar" ] && [ -e "$home/libs/kafka-tools-$1.jar" ] && return
    command -v mvn > /dev/null || { echo "kafka_jars.sh: no mvn here: apt-get install maven" >&2; return 1; }
    mkdir -p "$home"
    room=$(mktemp -d "$home/fetch.XXXXXX")
    pom "$1" > "$room/pom.xml"
    echo "fetching the jars of Apache Kafka $1"
    (cd "$room" && mvn -q -B dependency:copy-dependencies -DoutputDirectory=libs) || { rm -rf "$room"; return 1; }
    rm -rf "$home/libs"
    mv "$room/libs" "$home/libs"
    rm -rf "$room"
}

for version in "$@"; do fetch "$version"; done
