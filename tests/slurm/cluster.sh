#!/usr/bin/env bash
# A Slurm of this machine, for tests: slurmctld and munged in namespaces of their own (network, host name, mounts, processes), joined by a bridge with nodes,
# which node.sh starts. Usage: cluster.sh FOLDER (with etc/slurm.conf and hosts in it). It prints "ready" and lives until it is killed; with it goes all that it started.
set -euo pipefail
folder=$1

hostname control
ip link set lo up
ip link add bridge type bridge
ip address add 10.77.0.1/24 dev bridge
ip link set bridge up
mount --bind "$folder/hosts" /etc/hosts

umask 077
head -c 1024 /dev/urandom > "$folder/munge.key"
umask 022
munged --foreground --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" --pid-file="$folder/munge.pid" \
  --log-file="$folder/munge.log" --seed-file="$folder/munge.seed" > "$folder/munged.out" 2>&1 &
SLURM_CONF=$folder/etc/slurm.conf slurmctld -D > "$folder/slurmctld.out" 2>&1 &
echo ready
# As process 1 of its namespace it reaps what others leave behind.
while :; do wait -n || sleep 0.2; done
