#!/usr/bin/env bash
# Fetch by Maven coordinates into $ODRADEK_TEST_CACHE (else .cache): Apicurio Registry, a schema registry in Java.
# usage: tests/tools/registry.sh    One that is there is left alone; a broken download leaves nothing.
set -euo pipefail
cache=${ODRADEK_TEST_CACHE:-$(cd "$(dirname "$0")/../.." && pwd)/.cache}
version=3.0.9 # runs on Java 17
folder=$cache/apicurio-$version

[ -e "$folder" ] && exit
command -v mvn > /dev/null || { echo "registry.sh: no mvn here: apt-get install maven" >&2; exit 1; }
mkdir -p "$cache"
room=$(mktemp -d "$cache/fetch.XXXXXX")
trap 'rm -rf "$room"' EXIT
echo "fetching Apicurio Registry $version"
cd "$room"
mvn -q -B dependency:get dependency:copy -Dartifact="io.apicurio:apicurio-registry-app:$version:tar.gz:all" \
    -Dtransitive=false -DoutputDirectory=.
mkdir unpacked
tar xzf "apicurio-registry-app-$version-all.tar.gz" -C unpacked
mv unpacked "$folder"
