#!/usr/bin/env bash
# Fetch all jars of Apache Kafka by Maven coordinates into $ODRADEK_TEST_CACHE (else .cache)/kafka-VERSION/libs.
# usage: tests/tools/kafka_jars.sh VERSION…    Done versions are left alone; a broken download leaves nothing.
set -euo pipefail
cache=${ODRADEK_TEST_CACHE:-$(cd "$(dirname "$0")/../.." && pwd)/.cache}

scala() { case $1 in 0.8.*) echo 2.11 ;; *) echo 2.13 ;; esac; }

artifacts() { # kafka_<scala>, and the commands, which came into a jar of their own with 3.3
    echo "kafka_$(scala "$1")"
    case $1 in 0.8.*) ;; *) echo kafka-tools ;; esac
}

dependencies() {
    local artifact
    for artifact in $(artifacts "$1"); do
        echo "<dependency><groupId>org.apache.kafka</groupId>"
        echo "  <artifactId>$artifact</artifactId><version>$1</version></dependency>"
    done
}

pom() {
    cat <<EOF
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>odradek</groupId><artifactId>kafka-jars</artifactId><version>1</version>
  <dependencies>
$(dependencies "$1")
  </dependencies>
</project>
EOF
}

complete() {
    local artifact
    for artifact in $(artifacts "$1"); do [ -e "$2/$artifact-$1.jar" ] || return 1; done
}

fetch() {
    local home=$cache/kafka-$1 room
    complete "$1" "$home/libs" && return
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
