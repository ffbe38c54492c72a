#!/usr/bin/env bash
# The main job on a fresh machine: sets up, builds, and compares configurations of a small Llama and a small Qwen3 on real text on the processor.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash launch/setup.sh
build=${CONSIST_BUILD:-build}
PATH=$(realpath -m "$build")/tools/bin:$PATH  # cmake and ninja, where setup.sh had to bring them
frontend=$(bash launch/cuda_headers.sh "$build")
if [ ! -f "$build/CMakeCache.txt" ]; then cmake -G Ninja -S . -B "$build" -DCONSIST_BUILD_TESTS=OFF -DCONSIST_UNITY=ON ${frontend:+-DCUDNN_FRONTEND_ROOT="$frontend"}; fi
cmake --build "$build"
"$build/bin/consist" compare --model llama-tiny,qwen3-tiny --strategy ddp --ranks 1,2 --precision fp32,bf16 \
  --dataset text --sequence 256 --global-batch 8 --steps 20 --learning-rate 5e-4 --constant.warmup 5 \
  --evaluate-every 20 --sample-every 20 --sample-prompt "The train" --repeats 3 --output runs/quickstart \
  --report runs/quickstart/report.html

cat <<END

Next, in this folder:
  export PATH="$(cd "$build/bin" && pwd):\$PATH"
  consist train --model qwen3-tiny --dataset text --precision bf16 --steps 100 --archive run.h5 --checkpoint ckpt
  consist explain --model llama-3-8b --strategy tp-sp=4 --ranks 4 --precision bf16 --machine h200 --summary
  consist compare --model qwen3-tiny --strategy ddp,zero2,tp-sp=2,pipeline=2 --ranks 2 --global-batch 8 --accumulation 2 --steps 20
END
