#!/usr/bin/env bash
# Debian's RabbitMQ, unpacked into a folder and not installed: nothing is started, no user or service is made.
# usage: loadtest/rabbitmq.sh FOLDER    Leaves FOLDER/root and FOLDER/bin/erl; a broken download leaves nothing.
set -euo pipefail
home=$1
packages=(rabbitmq-server librabbitmq4 librabbitmq-dev erlang-base erlang-asn1 erlang-crypto erlang-public-key
    erlang-mnesia erlang-runtime-tools erlang-ssl erlang-eldap erlang-inets erlang-os-mon erlang-parsetools
    erlang-syntax-tools erlang-tools erlang-xmerl)

[ -e "$home/root" ] && exit 0
command -v apt-get > /dev/null || { echo "rabbitmq.sh: RabbitMQ comes from Debian's packages: no apt-get here" >&2; exit 1; }
mkdir -p "$home"
room=$(mktemp -d "$home/fetch.XXXXXX")
trap 'rm -rf "$room"' EXIT
(cd "$room" && apt-get -qq download "${packages[@]}" > /dev/null 2> apt.log) || { tail -3 "$room/apt.log" >&2; exit 1; }
for package in "$room"/*.deb; do dpkg-deb -x "$package" "$room/root"; done

# The packaged erl knows only /usr/lib/erlang.
mkdir -p "$home/bin"
cat > "$home/bin/erl" << SHIM
#!/bin/sh
export ROOTDIR="$home/root/usr/lib/erlang" EMU=beam PROGNAME=erl
for BINDIR in "\$ROOTDIR"/erts-*/bin; do export BINDIR; done
exec "\$BINDIR/erlexec" "\$@"
SHIM
chmod +x "$home/bin/erl"
mv "$room/root" "$home/root"
