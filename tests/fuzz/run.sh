#!/usr/bin/env bash
# Fuzzes every target with libFuzzer, address and undefined-behaviour sanitizers. Needs clang (Debian: clang).
# Usage: tests/fuzz/run.sh [SECONDS_PER_TARGET [TARGET...]]      e.g. tests/fuzz/run.sh 600 safetensors
# Builds in build-fuzz/ (CONSIST_FUZZ_BUILD); an input that crashes a target is left in build-fuzz/findings/ and named.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=${1:-600}
[ $# -gt 0 ] && shift
build=${CONSIST_FUZZ_BUILD:-build-fuzz}
if ! command -v clang++ >/dev/null; then
  echo "libFuzzer comes with clang, which is not installed (Debian: apt-get install clang)" >&2
  exit 1
fi
cmake -G Ninja -S . -B "$build" -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER=clang -DCONSIST_FUZZ=ON \
  -DCONSIST_SANITIZE=address,undefined -DCMAKE_CXX_FLAGS=-fsanitize=fuzzer-no-link >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
rm -f "$build.log"
cmake --build "$build" --target fuzz_targets

targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls "$build/tests/fuzz/targets")
mkdir -p "$build/findings"
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
failed=0
for target in "${targets[@]}"; do
  corpus="$build/corpus/$target"
  mkdir -p "$corpus"
  for seed in $(cat "$build/tests/fuzz/targets/$target"); do
    find "$seed" -type f -exec cp -n {} "$corpus/" \;
  done
  echo "$target: $seconds s"
  # Allocations beyond 2 GiB or inputs that take longer than 10 s (under the sanitizers) count as findings, too.
  if "$build/bin/fuzz_$target" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 -max_len=1000000 -print_final_stats=1 \
    -artifact_prefix="$build/findings/$target-" "$corpus" >"$build/$target.log" 2>&1; then
    grep -E "number_of_executed_units|peak_rss_mb" "$build/$target.log"
  else
    failed=$((failed + 1))
    tail -40 "$build/$target.log"
  fi
done
echo "$((${#targets[@]} - failed)) passed, $failed failed"
[ "$failed" = 0 ]
