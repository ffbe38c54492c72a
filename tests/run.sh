#!/usr/bin/env bash
# Sets up, builds and runs the tests. Usage: tests/run.sh [--all-kernels] [--cases PATTERNS] [ARGUMENTS OF CTEST]
# --cases runs the test cases whose full names match, as --gtest_filter takes them: --cases '*Layout*zero2*:-*bf16*'.
# A new build folder is compiled folder by folder (CONSIST_UNITY), and gets processor kernels for the highest instruction set that runs
# here and, where there is no GPU, GPU kernels for one architecture; with --all-kernels, kernels for every instruction set and architecture, as quickstart builds them.
# Ends with the names of the cases that failed and a line "N passed, N failed, N skipped", of cases; the exit status is 0 only if cases ran
# and none failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
all_kernels=false
entries=()
while [ $# -gt 0 ]; do
  case $1 in
    --all-kernels) all_kernels=true ;;
    --cases)
      export GTEST_FILTER=${2:?--cases needs patterns}
      # Whether a case of tests/external is among them is not known yet: they make the installation that they need by themselves.
      entries=(--label-regex '^cases$' --fixture-exclude-setup '^installed$')
      shift
      ;;
    *) break ;;
  esac
  shift
done
bash launch/setup.sh tests/packages.txt

build=${CONSIST_BUILD:-build}
PATH=$(realpath -m "$build")/tools/bin:$PATH  # cmake and ninja, where setup.sh had to bring them
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
  kernels=(-DCONSIST_CPU_LEVELS=highest -DCONSIST_UNITY=ON)
  # As in the packages, which tests/package makes of this build.
  if dpkg-query -W libhdf5-dev > /dev/null 2>&1; then kernels+=(-DCONSIST_PORTABLE=ON); fi
  nvidia-smi -L > /dev/null 2>&1 || kernels+=(-DCMAKE_CUDA_ARCHITECTURES=90a)
fi
cmake -G Ninja -S . -B "$build" -DCONSIST_BUILD_TESTS=ON "${kernels[@]}" ${frontend:+-DCUDNN_FRONTEND_ROOT="$frontend"}
# About 1 GiB of memory for each compiler; fewer jobs where there is less.
memory_jobs=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
jobs=$(nproc)
[ "$memory_jobs" -ge 1 ] && [ "$memory_jobs" -lt "$jobs" ] && jobs=$memory_jobs
cmake --build "$build" --parallel "$jobs"

# ctest's entries are processes that run many cases each (tests/cases.py).
results="$build/Testing/cases"
rm -rf "$results" "$build/tests.xml"
[ ${#entries[@]} -eq 0 ] || rm -rf "$build/tests/external/installed"
# One more than there are processors: some mostly wait.
ctest --test-dir "$build" --output-on-failure --no-tests=error --parallel $((jobs + 1)) --output-junit "$(realpath "$build")/tests.xml" "${entries[@]}" "$@" 2>&1 |
  tee "$build/tests.log" || true
python3 tests/cases.py count "$build/tests.xml" "$results"
