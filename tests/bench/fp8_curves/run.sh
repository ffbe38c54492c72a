#!/usr/bin/env bash
# Trains what curves.py compares. Archives go to FOLDER; a run that is finished there already is not made again.
#   tests/bench/fp8_curves/run.sh PART BUILD TOKENS FOLDER
#     curves  2 models x {bf16, fp8} x 3 seeds, 1,000 steps each, on a GPU (three at a time: ~110 s on an H200)
#     more    qwen3-100m with the seeds 3, 4, 5 (~60 s)
#     again   qwen3-100m with seed 2 in micro-batches of half the size: the same training, its sums in another order (~20 s)
#     slow    qwen3-100m at half of the learning rate with twice the warm-up, 3 seeds (~60 s)
#     cuda    the first 50 steps of both models in fp8, small batches, on a GPU
#     cpu     the same on the processor, which emulates fp8 value for value (~3 min on two cores)
set -uo pipefail
part=${1:-}
[ $# = 4 ] || part=help
consist=$(cd "${2:-.}" && pwd)/bin/consist
tokens=$(realpath "${3:-.}")
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

# pairs MODEL NAME "SEEDS" OPTIONS...: bf16 and fp8 with each seed, the seeds at once.
pairs() {
  local model=$1 name=$2 seeds=$3 precision seed running
  shift 3
  for precision in bf16 fp8; do
    running=()
    for seed in $seeds; do
      train "$name-$precision-seed$seed" --model "$model" --precision $precision --seed "$seed" --steps 1000 --sequence 512 --schedule cosine --device cuda "$@" &
      running+=($!)
    done
    for seed in "${running[@]}"; do wait "$seed" || failed=1; done
  done
}

if [ "$part" != help ]; then
  mkdir -p "$4"
  cd "$4" || exit 2
fi
# 1,000 x 8 x 512 tokens, each of them seen once.
fast="--batch 8 --learning-rate 6e-4 --cosine.warmup 100"
case $part in
  curves) for model in llama-100m qwen3-100m; do pairs $model $model "0 1 2" $fast; done ;;
  more) pairs qwen3-100m qwen3-100m "3 4 5" $fast ;;
  again) pairs qwen3-100m qwen3-100m-again "2" --batch 4 --accumulation 2 --learning-rate 6e-4 --cosine.warmup 100 ;;
  slow) pairs qwen3-100m qwen3-100m-slow "0 1 2" --batch 8 --learning-rate 3e-4 --cosine.warmup 200 ;;
  cuda | cpu)
    for model in llama-100m qwen3-100m; do
      train "$model-fp8-$part" --model $model --precision fp8 --device "$part" --steps 50 --batch 2 --sequence 256 --learning-rate 6e-4 --constant.warmup 20 --seed 0 || failed=1
    done
    ;;
  *) sed -n '2,9p' "$0" >&2; exit 2 ;;
esac
exit $failed
