#!/usr/bin/env bash
# A host of network.sh, in its namespaces: a daemon in a network of its own, behind one end of a pair whose other end is in the bridge.
# Usage: host.sh FOLDER NAME ADDRESS DAEMON [ARGUMENTS]. It lives until it is killed.
set -euo pipefail
folder=$1 name=$2 address=$3
shift 3

# shellcheck disable=SC2016
unshare --net --uts bash -c '
  hostname "$1"
  for ((tries = 0; tries < 500; ++tries)); do
    [ ! -e /sys/class/net/inner ] && ! ip link show inner > /dev/null 2>&1 || break
    sleep 0.02
  done
  ip link set lo up
  ip address add "$2/24" dev inner
  ip link set inner up
  shift 2
  exec "$@"' host "$name" "$address" "$@" > "$folder/daemon.$name.out" 2>&1 &
host=$!
for ((tries = 0; tries < 500; ++tries)); do
  [ "$(readlink /proc/$host/ns/net)" = "$(readlink /proc/self/ns/net)" ] || break
  sleep 0.02
done
ip link delete "$name" 2> /dev/null || true  # of the host before: connections that its end left open keep its network alive
# The same hardware address each time: others still know that of the host before.
ip link add "$name" type veth peer name inner address "02:00:00:00:00:$(printf %02x "${address##*.}")" netns "$host"
ip link set "$name" master bridge up
echo "$host"
wait "$host"
