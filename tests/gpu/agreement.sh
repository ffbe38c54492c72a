#!/usr/bin/env bash
# Ranks whose programs differ must be refused before the first step, on GPUs as on host memory: collectives in another order, one more, other
# sizes. Usage: tests/gpu/agreement.sh [BUILD]; TRANSPORTS="nvlink socket" and RANKS=2 may be given. Exit status 0 only if all were refused and
# the strategy without a mistake trained.
set -uo pipefail
build=$(cd "${1:-build}" && pwd) || exit 2
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failed=0
for transport in ${TRANSPORTS:-nvlink socket}; do
  for mistake in none order number size; do
    start=$SECONDS
    timeout 120 "$build/bin/consist" train --plugin "$build/lib/consist/test-plugins/strategy-disagreeing.so" --strategy disagreeing \
      --disagreeing.mistake "$mistake" --ranks "${RANKS:-2}" --transport "$transport" --device cuda --model llama-tiny --from-scratch --dataset synthetic \
      --sequence 256 --batch 2 --steps 3 --archive "$out/$transport-$mistake.h5" > "$out/log" 2>&1
    status=$?
    if [ $mistake = none ]; then
      [ $status = 0 ] && verdict=trained || verdict=FAILED
    elif [ $status -ne 0 ] && [ $status -lt 124 ] && grep -q 'do not agree' "$out/log" && ! [ -e "$out/$transport-$mistake.h5" ]; then
      verdict=refused
    else
      verdict=FAILED
    fi
    printf '%-8s %-7s %-8s status %3d %3d s  %s\n' "$transport" "$mistake" "$verdict" $status $((SECONDS - start)) \
      "$(grep -o 'rank [0-9]* and rank [0-9]*, on axis.*\|the ranks block each other.*\|loss [0-9.]* .*tokens/s' "$out/log" | head -1 | cut -c1-90)"
    if [ "$verdict" = FAILED ]; then
      failed=1
      tail -20 "$out/log"
    fi
  done
done
[ $failed = 0 ] && echo "PASSED agreement of ranks on GPUs" || echo "FAILED agreement of ranks on GPUs"
exit $failed
