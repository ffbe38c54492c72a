#!/usr/bin/env bash
# The main job on a fresh machine: sets up, builds, and compares make-ups of a small Llama and a small Qwen3 on real text on the processor.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash launch/setup.sh
build=${CONSIST_BUILD:-build}
frontend=$(bash launch/cuda_headers.sh "$build")
if [ ! -f "$build/CMakeCache.txt" ]; then cmake -G Ninja -S . -B "$build" -DCONSIST_BUILD_TESTS=OFF ${frontend:+-DCUDNN_FRONTEND_ROOT="$frontend"}; fi
cmake --build "$build"
exec "$build/bin/consist" compare --model llama-tiny,qwen3-tiny --strategy ddp --ranks 1,2 --precision fp32,bf16 \
  --dataset text --sequence 256 --global-batch 8 --steps 40 --learning-rate 5e-4 --warmup 10 --output runs/quickstart
