#!/usr/bin/env bash
# Kills one rank of a run whose collectives go by copy engines, with so many launches per step that the host waits inside the driver, and measures
# how long the job takes to end, by itself. Usage: tests/gpu/killed_rank.sh [BUILD]; RANKS=4 ROUNDS=3 LIMIT=9 (seconds) and OPTIONS (of the run) may be
# given. Without a rank that can leave, the launcher would end the job after 10 s.
# Exit status 0 only if every job ended within LIMIT, named the killed rank, and left a whole archive that says "failed".
set -uo pipefail
build=$(cd "${1:-build}" && pwd) || exit 2
options=${OPTIONS:---device cuda --transport nvlink --nvlink.copy-engines all --strategy zero3-offload --model qwen3-0.6b --sequence 4096 --batch 2 --precision bf16 --accumulation 8}
ranks=${RANKS:-4} rounds=${ROUNDS:-3} limit=${LIMIT:-9}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failed=0
for ((round = 0; round < rounds; ++round)); do
  victim=$((1 + round % (ranks - 1)))
  archive=$out/$round.h5
  # shellcheck disable=SC2086 # options are words
  "$build/bin/consist" train --ranks "$ranks" $options --from-scratch --dataset synthetic --steps 100000 --timeout 10 --archive "$archive" \
    > "$out/log" 2>&1 &
  launcher=$!
  for ((i = 0; i < 1800; ++i)); do
    grep -Eq 'step [0-9]+/' "$out/log" && break
    kill -0 $launcher 2> /dev/null || break
    sleep 0.1
  done
  target=
  for pid in $(pgrep -P $launcher); do
    tr '\0' '\n' < "/proc/$pid/environ" 2> /dev/null | grep -qx "RANK=$victim" && target=$pid
  done
  if [ -z "$target" ]; then
    echo "round $round: FAILED: no process of rank $victim; the run says:"
    tail -20 "$out/log"
    kill $launcher 2> /dev/null
    failed=1
    break
  fi
  sleep 0.$((RANDOM % 9))
  kill -9 "$target"
  start=$(date +%s%3N)
  for ((i = 0; i < 600; ++i)); do
    kill -0 $launcher 2> /dev/null || break
    sleep 0.1
  done
  kill -9 $launcher 2> /dev/null && late=1 || late=0
  wait $launcher
  status=$?
  took=$(($(date +%s%3N) - start))
  named=$(grep -c "rank $victim on host" "$out/log")
  forced=$(grep -c 'could not leave within' "$out/log")
  whole=$(grep -ac "rank $victim on host" "$archive")
  verdict=ok
  if [ $late = 1 ] || [ $took -gt $((limit * 1000)) ] || [ "$named" = 0 ] || [ "$whole" = 0 ]; then
    verdict=FAILED
    failed=1
    tail -20 "$out/log"
  fi
  printf 'round %d: rank %d killed: %s after %d ms, status %d; lines that name it: %d; ranks that had to be ended by their own watch: %d; archive has the reason: %d\n' \
    $round $victim $verdict $took $status "$named" "$forced" "$whole"
done
[ $failed = 0 ] && echo "PASSED a killed rank under copy engines" || echo "FAILED a killed rank under copy engines"
exit $failed
