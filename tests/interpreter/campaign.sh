#!/usr/bin/env bash
# Draws random configurations for as long as it is given, other ones in each round, and keeps what failed.
#
#   tests/interpreter/campaign.sh MINUTES [FOLDER]     FOLDER: where outputs of failed rounds are kept (build/campaign)
#
# Exit status 1 if any configuration failed; its line begins with CONSIST_SEED=..., which repeats the round.
set -euo pipefail
cd "$(dirname "$0")/../.."
minutes=${1:?how many minutes}
folder=${2:-build/campaign}
test=build/bin/test_interpreter
[ -x "$test" ] || { echo "$test is not there; build first: bash tests/run.sh" >&2; exit 2; }
mkdir -p "$folder"
end=$((SECONDS + minutes * 60))
rounds=0 failed=0
while [ $SECONDS -lt $end ]; do
  rounds=$((rounds + 1))
  output=$folder/round-$rounds.txt
  if CONSIST_SEED=random "$test" --gtest_filter='*RandomConfigurations*' > "$output" 2>&1; then
    rm "$output"
  else
    failed=$((failed + 1))
    echo "round $rounds failed: $output"
  fi
done
echo "$rounds rounds of 500 configurations, $failed failed"
[ $failed = 0 ]
