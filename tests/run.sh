#!/usr/bin/env bash
# Sets up, builds and runs the tests. Usage: tests/run.sh [--all-kernels] [-R REGEX]   (arguments go to ctest)
# A new build folder gets processor kernels for the highest instruction set that runs here and, where there is no GPU, GPU kernels for one
# architecture; with --all-kernels, kernels for every instruction set and architecture, as quickstart builds them.
# Ends with a line "N passed, N failed, N skipped"; the exit status is 0 only if tests ran and none failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
all_kernels=false
if [ "${1:-}" = --all-kernels ]; then
  all_kernels=true
  shift
fi
bash launch/setup.sh tests/packages.txt

build=${CONSIST_BUILD:-build}
# Some tests read results as users do, with Python. Their packages are pinned and stay in the build folder.
if ! cmp -s tests/requirements.txt "$build/venv/installed.txt"; then
  mkdir -p "$build"
  python3 -m venv --clear "$build/venv"
  "$build/venv/bin/pip" install --quiet --disable-pip-version-check -r tests/requirements.txt
  cp tests/requirements.txt "$build/venv/installed.txt"
fi

frontend=$(bash launch/cuda_headers.sh "$build")
kernels=()
if $all_kernels; then
  kernels=(-UCONSIST_CPU_LEVELS -UCMAKE_CUDA_ARCHITECTURES)  # the defaults
elif [ ! -f "$build/CMakeCache.txt" ]; then
  kernels=(-DCONSIST_CPU_LEVELS=highest)
  nvidia-smi -L > /dev/null 2>&1 || kernels+=(-DCMAKE_CUDA_ARCHITECTURES=90a)
fi
cmake -G Ninja -S . -B "$build" -DCONSIST_BUILD_TESTS=ON "${kernels[@]}" ${frontend:+-DCUDNN_FRONTEND_ROOT="$frontend"}
# About 1 GiB of memory for each compiler; fewer jobs where there is less.
memory_jobs=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
jobs=$(nproc)
[ "$memory_jobs" -ge 1 ] && [ "$memory_jobs" -lt "$jobs" ] && jobs=$memory_jobs
cmake --build "$build" --parallel "$jobs"

log="$build/tests.log"
status=0
ctest --test-dir "$build" --output-on-failure --no-tests=error --parallel "$jobs" "$@" 2>&1 | tee "$log" || status=$?
summary=$(grep -E '[0-9]+% tests passed, [0-9]+ tests failed out of [0-9]+' "$log" | tail -1 || true)
total=$(sed -E 's/.*out of ([0-9]+).*/\1/' <<<"${summary:-out of 0}")
failed=$(sed -E 's/.*, ([0-9]+) tests failed.*/\1/' <<<"${summary:-, 0 tests failed}")
# CTest counts them as passed, and lists them behind its summary.
skipped=$(grep -cE '^[[:space:]]*[0-9]+ - .* \(Skipped\)$' "$log" || true)
if [ "$total" = 0 ]; then
  echo "no test ran" >&2
  exit 1
fi
echo "$((total - failed - skipped)) passed, $failed failed, $skipped skipped"
exit "$status"
