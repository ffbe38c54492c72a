#!/usr/bin/env bash
# Trains what curves.py compares. Archives go to FOLDER; a run whose archive is there already and finished is not made again.
#   tests/bench/fp8_curves/run.sh curves BUILD TOKENS FOLDER    2 models x {bf16, fp8} x 3 seeds, 1,000 steps each, on a GPU (three at a time: ~2.5 min)
#   tests/bench/fp8_curves/run.sh cuda   BUILD TOKENS FOLDER    the first 50 steps of both models in fp8, small batches, on a GPU
#   tests/bench/fp8_curves/run.sh cpu    BUILD TOKENS FOLDER    the same on the processor, which emulates fp8 value for value (~5 min on two cores)
set -uo pipefail
what=$1
consist=$(cd "$2" && pwd)/bin/consist
tokens=$(realpath "$3")
mkdir -p "$4"
cd "$4"
failed=0

# train NAME OPTIONS...: one run; its last line, or why it failed.
train() {
  local name=$1
  shift
  [ -f "$name.done" ] && return 0
  if timeout 900 "$consist" train --dataset tokens --tokens.files "$tokens" --archive "$name.h5" --overwrite --timeout 300 "$@" > "$name.log" 2>&1; then
    touch "$name.done"
    echo "$name: $(grep -a '^loss' "$name.log" | tail -1)"
  else
    echo "$name FAILED: $(grep -a 'consist:' "$name.log" | head -2)"
    return 1
  fi
}

# One epoch's part: 1,000 x 8 x 512 tokens, each of them seen once.
curves="--steps 1000 --batch 8 --sequence 512 --learning-rate 6e-4 --schedule cosine --warmup 100 --device cuda"
start="--steps 50 --batch 2 --sequence 256 --learning-rate 6e-4 --warmup 20 --seed 0"

case $what in
  curves)
    for model in llama-100m qwen3-100m; do
      for precision in bf16 fp8; do
        running=()
        for seed in 0 1 2; do
          train "$model-$precision-seed$seed" --model $model --precision $precision --seed $seed $curves &
          running+=($!)
        done
        for process in "${running[@]}"; do wait "$process" || failed=1; done
      done
    done
    ;;
  cuda | cpu)
    for model in llama-100m qwen3-100m; do
      train "$model-fp8-$what" --model $model --precision fp8 --device "$what" $start || failed=1
    done
    ;;
  *) sed -n '2,6p' "$0" >&2; exit 2 ;;
esac
exit $failed
