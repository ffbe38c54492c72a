#!/usr/bin/env bash
# A network of this machine, for tests: namespaces of its own (network, host name, mounts, processes) with a bridge that hosts are joined to, which host.sh starts.
# Usage: network.sh FOLDER ADDRESS (FOLDER/hosts becomes /etc/hosts). It prints "ready" and lives until it is killed; with it goes all that it started.
set -euo pipefail
folder=$1 address=$2

hostname control
ip link set lo up
ip link add bridge type bridge
ip address add "$address/24" dev bridge
ip link set bridge up
mount --bind "$folder/hosts" /etc/hosts
echo ready
# As process 1 of its namespace it reaps what others leave behind.
while :; do wait -n || sleep 0.2; done
