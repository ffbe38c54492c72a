#!/usr/bin/env bash
# Does a comparison withstand a busy machine? Compares the same four configurations, which differ by
# more than 5%, five times: twice alone, and three times with a second job of
# two threads beside it: all the time, in bursts of five seconds, and from the second round on. Prints what each comparison says about the
# fastest, and the speeds in the order of the rows. For a machine of two cores that does nothing else.
#
# usage: tests/bench/compare/run.sh [FOLDER]     (CONSIST: the executable; FOLDER: for archives and outputs, runs/compare_under_load)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
consist=${CONSIST:-build/bin/consist}
out=${1:-runs/compare_under_load}
mkdir -p "$out"

job() {  # the second job
  exec "$consist" train --model qwen3-tiny --device cpu --cpu.threads 2 --dataset synthetic --sequence 256 --batch 4 --steps 1000000 >/dev/null 2>&1
}

beside() {  # $1: never, always, bursts or late
  case $1 in
    never) ;;
    always) job ;;
    late) sleep 20; job ;;
    bursts) while :; do (job) & local one=$!; trap 'kill $one 2>/dev/null; exit' TERM; sleep 5; kill $one; wait $one || true; sleep 5; done ;;
  esac
}

for run in 1:never 2:always 3:bursts 4:never 5:late; do
  name=${run%%:*} kind=${run##*:}
  (beside "$kind") &
  other=$!
  [ "$kind" != always ] || sleep 3
  "$consist" compare --model llama-tiny --device cpu --batch 2,8 --precision fp32,bf16 --dataset synthetic --sequence 256 \
    --steps 24 --repeats 3 --output "$out/$name" --overwrite > "$out/$name.txt" 2> "$out/$name.log"
  kill $other 2>/dev/null || true
  wait $other 2>/dev/null || true
  printf '%s, second job %s:' "$name" "$kind"
  awk '$1 == "llama-tiny" || $2 == "llama-tiny" { i = $1 == "llama-tiny" ? 1 : 2; printf " %s %s: %s %s %s;", $(i+1), $(i+2), $(i+3), $(i+4), $(i+5) }' "$out/$name.txt"
  printf '\n'
  grep -A4 '^warning\|^Fastest' "$out/$name.txt" | grep -v '^[0-9]* s,\|^--' || true
done
