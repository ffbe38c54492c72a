#!/usr/bin/env bash
# Everything that needs GPUs, on however many there are: tests, then benchmarks; a short table last. Exit status 0 only if all tests passed.
#   tests/gpu/run.sh [BUILD]              a build folder (default: build), as tests/run.sh or cmake make it
#   tests/gpu/run.sh --packed FILE        a build packed by tests/gpu/pack.sh on another machine; unpacked to the same path as there
#   CONSIST_GPU_PARTS="kernels parity ..."  only these parts; CONSIST_GPU_OUT=FOLDER for logs and archives (default: gpu-results)
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${CONSIST_GPU_OUT:-gpu-results}
mkdir -p "$out"
out=$(cd "$out" && pwd)
if [ "${1:-}" = --packed ]; then
  tar -xJf "$2" -C / || exit 2
  source=$(tar -tJf "$2" | sed -n 's#^\.\(/.*\)/tests/gpu/packed-build$#\1#p')
  build=$(cat "$source/tests/gpu/packed-build")
  export LD_LIBRARY_PATH="$build/carried${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
else
  build=$(cd "${1:-build}" && pwd) || exit 2
fi
# CUDA's libraries may live in a Python environment.
for folder in $(python3 -c 'import sys, glob; print(*(f for p in sys.path for f in glob.glob(p + "/nvidia/*/lib")))' 2>/dev/null); do
  LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
done
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/cuda/lib64"
export NCCL_NVLS_ENABLE=0

gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
if [ "$gpus" = 0 ]; then
  echo "tests/gpu/run.sh: nvidia-smi finds no GPU here" >&2
  exit 2
fi
nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader | tee "$out/gpus.txt"

failed=0
summary=()
wanted() { [ -z "${CONSIST_GPU_PARTS:-}" ] || [[ " $CONSIST_GPU_PARTS " == *" $1 "* ]]; }

# part NAME SECONDS COMMAND...: a test program, with its last line in the table.
part() {
  local name=$1 limit=$2 start=$SECONDS
  shift 2
  wanted "$name" || return 0
  echo "== $name"
  timeout "$limit" "$@" > "$out/$name.log" 2>&1
  local status=$?
  if [ $status -ne 0 ]; then
    failed=1
    grep -E 'Failure|FAILED|error|what\(\)' -A3 "$out/$name.log" | head -${CONSIST_GPU_LINES:-40}
  fi
  summary+=("$(printf '%-22s %-6s %4d s  %s' "$name" "$([ $status = 0 ] && echo ok || echo "FAILED ($status)")" $((SECONDS - start)) "$(grep -E 'tests? ran|PASSED|tokens/s \(median|wrong elements|slowest rank' "$out/$name.log" | tail -1 | cut -c1-150)")")
}

# shards COUNT COMMAND...: a test program as COUNT processes side by side. Its references are computed by the processor and take most of the time.
shards() {
  local count=$1 status=0 folder
  shift
  folder=$(mktemp -d)
  for ((i = 0; i < count; ++i)); do
    GTEST_TOTAL_SHARDS=$count GTEST_SHARD_INDEX=$i OMP_NUM_THREADS=1 "$@" > "$folder/$i" 2>&1 &
    echo $! > "$folder/$i.pid"
  done
  for ((i = 0; i < count; ++i)); do wait "$(cat "$folder/$i.pid")" || status=1; done
  cat "$folder"/*[0-9]
  echo "PASSED $(cat "$folder"/*[0-9] | grep -c '^\[       OK ') tests, failed $(cat "$folder"/*[0-9] | grep -c '^\[  FAILED  \].*ms)'), skipped $(cat "$folder"/*[0-9] | grep -c '^\[  SKIPPED \].*ms)'), in $count processes"
  rm -r "$folder"
  return $status
}
export -f shards

# each PROGRAM FILTER: every test in a process of its own. In those whose job fails a member frees memory that another one's copies still
# write to, as at the end of a process; what is left is an error that the process cannot get rid of.
each() {
  local status=0 passed=0 failed=0 test
  for test in $("$1" --gtest_filter="$2" --gtest_list_tests | awk '/^[^ ]/ {suite=$1} /^ / {print suite $1}' | grep -v DISABLED_); do
    if "$1" --gtest_filter="$test"; then passed=$((passed + 1)); else failed=$((failed + 1)) status=1; fi
  done
  echo "PASSED $passed tests, failed $failed, each in its process"
  return $status
}
export -f each

# train NAME SECONDS RANKS OPTIONS...: a run; its result line goes into the table.
train() {
  local name=$1 limit=$2 ranks=$3
  shift 3
  [ "$ranks" -le "$gpus" ] || return 0
  part "$name" "$limit" "$build/bin/consist" train --device cuda --ranks "$ranks" --dataset synthetic --archive "$out/$name.h5" --overwrite "$@"
}

part device 60 "$build/bin/test_cuda"
part refused-kernels 60 "$build/bin/test_cuda_code"
part kernels 240 bash -c 'shards "$@"' - $(($(nproc) < 8 ? $(nproc) : 8)) "$build/bin/test_kernels" --gtest_filter='*cuda*:*Cuda*'
part parity 120 "$build/bin/test_parity" --gtest_filter='*cuda*:Cuda/DeviceParity*'
part shared-gpu 600 "$here/shared_gpu.sh" "$build"
# Between GPUs: one process per transport, since NCCL's settings are those of the process.
if [ "$gpus" -ge 2 ]; then
  for transport in nvlink:copy-engines=none nvlink:copy-engines=all:staging=300Ki shm socket; do
    CONSIST_CONFORMANCE_MEMORY=cuda CONSIST_CONFORMANCE_TRANSPORTS=$transport part "transport-${transport%:staging*}" 120 "$build/bin/test_conformance_transport"
  done
  # 16 layouts x 4 models, one after the other: jobs that share GPUs wait for each other's collectives for minutes.
  part layouts 600 "$build/bin/test_parity" --gtest_filter='Cuda*/GpuLayoutParity*'
  # No transport is named: NVLink, where there is NVLink.
  part automatic-transport 120 bash -c '"$@" 2>&1 | grep "data over nvlink within nodes (--transport auto)"' - "$build/bin/consist" train --device cuda --ranks 2 \
    --model llama-tiny --from-scratch --dataset synthetic --sequence 256 --batch 2 --steps 2
  part nccl 120 bash -c 'each "$@"' - "$build/bin/test_transport" 'NcclGpu.*'
  part agreement 400 "$here/agreement.sh" "$build"
  RANKS=$gpus part killed-rank 400 "$here/killed_rank.sh" "$build"
  part collectives-nvlink 90 "$build/bin/consist" bench collectives --transport nvlink --nvlink.copy-engines=none --device cuda --ranks "$gpus" --dtype bf16 --factor 4 --max-bytes 1Gi \
    --seconds 0.3 --collectives all_reduce,all_gather,reduce_scatter
  part collectives-copy-engines 90 "$build/bin/consist" bench collectives --transport nvlink --nvlink.copy-engines=all --device cuda --ranks "$gpus" --dtype bf16 \
    --factor 4 --max-bytes 1Gi --seconds 0.3 --collectives all_gather,reduce_scatter,send_receive
  part collectives-shm 90 "$build/bin/consist" bench collectives --transport shm --device cuda --ranks "$gpus" --dtype bf16 --factor 16 --max-bytes 256Mi \
    --seconds 0.3 --collectives all_reduce,all_gather,reduce_scatter
  part collectives-socket 90 "$build/bin/consist" bench collectives --transport socket --device cuda --ranks "$gpus" --dtype bf16 --factor 16 --max-bytes 256Mi \
    --seconds 0.3 --collectives all_reduce,all_gather,reduce_scatter
fi
part bench_kernels 180 "$build/bin/bench_kernels" --device cuda
# Ranks of cp that have equal work take equally long, each alone on this GPU.
part context-ranks 120 "$build/bin/bench_kernels" --device cuda --model llama-3-8b --batch 1 --sequence 65536 --context 2

q="--model qwen3-0.6b --sequence 4096 --precision bf16 --timeout 120"
train qwen3-0.6b-b4 180 1 $q --batch 4 --steps 30
train qwen3-0.6b-b4-profile 180 1 $q --batch 4 --steps 6 --profile
train qwen3-0.6b-b16 180 1 $q --batch 16 --steps 25
train qwen3-0.6b-b4-fp32 240 1 --model qwen3-0.6b --sequence 4096 --precision fp32 --timeout 120 --batch 4 --steps 6
train llama-3-8b-b4 300 1 --model llama-3-8b --sequence 4096 --precision bf16 --bf16.states bf16 --bf16.gradients bf16 --batch 4 --steps 22 --timeout 120
train llama-3-8b-b4-profile 300 1 --model llama-3-8b --sequence 4096 --precision bf16 --bf16.states bf16 --bf16.gradients bf16 --batch 4 --steps 5 --profile --timeout 120
train qwen3-0.6b-ddp4-nvlink 240 4 $q --batch 8 --steps 25 --transport nvlink
train qwen3-0.6b-ddp4-socket 240 4 $q --batch 8 --steps 25 --transport socket

echo
echo "$gpus x $(head -1 "$out/gpus.txt")"
printf '%s\n' "${summary[@]}"
exit $failed
