#!/usr/bin/env bash
# A node of cluster.sh, in its namespaces: slurmd in a network of its own, behind one end of a pair whose other end is in the bridge. Usage: node.sh FOLDER NAME ADDRESS. It lives until it is killed.
set -euo pipefail
folder=$1 name=$2 address=$3

mkdir -p "$folder/spool.$name" "$folder/tmp.$name"
export SLURM_CONF=$folder/etc/slurm.conf
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
  exec slurmd -D -N "$1"' node "$name" "$address" > "$folder/slurmd.$name.out" 2>&1 &
node=$!
for ((tries = 0; tries < 500; ++tries)); do
  [ "$(readlink /proc/$node/ns/net)" = "$(readlink /proc/self/ns/net)" ] || break
  sleep 0.02
done
ip link delete "$name" 2> /dev/null || true  # of the node before: connections that its end left open keep its network alive
ip link add "$name" type veth peer name inner netns "$node"
ip link set "$name" master bridge up
echo "$node"
wait "$node"
