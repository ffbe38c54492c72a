#!/usr/bin/env bash
# Layouts of two and four ranks where there is one GPU: each rank is a node of its own with that GPU, for NCCL too (NCCL_HOSTID), which else
# refuses two ranks on one GPU. They take turns and talk over sockets, so this says nothing about speed; it does say that kernels and messages of a
# layout give what one rank computes. Usage: tests/gpu/shared_gpu.sh [BUILD]; DEVICE=cpu tries the script itself, ONLY='ep|ring' names layouts. Exit status 0 only if losses
# and gradient norms of all steps are one rank's, within 1e-5.
set -uo pipefail
build=$(cd "${1:-build}" && pwd) || exit 2
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export NCCL_SOCKET_IFNAME=lo CUDA_MODULE_LOADING=LAZY CONSIST_JOB_TOKEN=$RANDOM$RANDOM$RANDOM$RANDOM$RANDOM
port=$((20000 + $$ % 20000))

# job PORT NAME RANKS OPTIONS...: what its steps say goes to $out/NAME.csv.
job() {
  local port=$1 name=$2 ranks=$3 rank members=() failed=0
  shift 3
  for ((rank = 0; rank < ranks; ++rank)); do
    env RANK=$rank WORLD_SIZE="$ranks" LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" NCCL_HOSTID="$name-$rank" \
      timeout -k 5 "${LIMIT:-90}" "$build/bin/consist" train --device "${DEVICE:-cuda}" --transport socket --timeout 60 --dataset synthetic --from-scratch \
      --sequence 64 --global-batch 8 --steps 6 --precision fp32 --observe csv --csv.file "$out/$name.csv" "$@" \
      > "$out/$name.$rank" 2>&1 &
    members+=($!)
  done
  for member in "${members[@]}"; do wait "$member" || failed=1; done
  [ $failed = 0 ] && touch "$out/$name.done"
}

# worst NAME: the largest relative difference from one rank's columns; nothing if columns or steps differ.
worst() {
  awk -F, -v wanted='loss grad_norm' '
    FNR == 1 { file++; for (i = 1; i <= NF; i++) name[i] = $i; next }
    { for (i = 1; i <= NF; i++) if (index(" " wanted " ", " " name[i] " ")) {
        if (file == 1) { one[FNR, name[i]] = $i; cells++ }
        else { seen++; d = $i - one[FNR, name[i]]; if (d < 0) d = -d; d /= one[FNR, name[i]]; if (d > most) most = d } } }
    END { if (cells >= 12 && seen == cells) printf "%.1e", most }' "$out/${1%%-*}-one.csv" "$out/$1.csv" 2> /dev/null
}

# Lines of NAME RANKS OPTIONS; the name says the model before the first dash.
layouts='qwen3-one 1 --batch 8
moe-one 1 --batch 8
qwen3-ddp 2 --batch 4 --strategy ddp
qwen3-zero2 2 --batch 4 --strategy zero2
qwen3-zero3 2 --batch 4 --strategy zero3-offload
qwen3-zero3_on_host 2 --batch 4 --strategy zero3-offload --zero3-offload.offload-param.device cpu --zero3-offload.offload-optimizer.device cpu
qwen3-hybrid 4 --batch 2 --strategy zero3-offload=2+ddp=2
qwen3-tp_sp 2 --batch 8 --strategy tp-sp=2
qwen3-pipeline 2 --batch 2 --accumulation 4 --strategy pipeline=2
qwen3-tp_sp_pipeline 4 --batch 4 --accumulation 2 --strategy tp-sp=2+pipeline=2
qwen3-cp_gather 2 --batch 8 --strategy cp=2
qwen3-cp_ulysses 2 --batch 8 --strategy cp=2 --cp.attention ulysses
qwen3-cp_ring 2 --batch 8 --strategy cp=2 --cp.attention ring
qwen3-cp_ring_of_4 4 --batch 8 --strategy cp=4 --cp.attention ring
qwen3-cp_zero3 4 --batch 4 --strategy cp=2+zero3-offload
moe-cp_ring 2 --batch 8 --strategy cp=2 --cp.attention ring
moe-ep 2 --batch 4 --strategy ep=2+ddp
moe-ep_all_to_all 2 --batch 4 --strategy ep=2+ddp --ep.dispatch all-to-all
moe-ep_zero2 2 --batch 4 --strategy ep=2+zero2
moe-ep_cp 4 --batch 4 --strategy ep=2+cp=2
moe-tp_sp 2 --batch 8 --strategy tp-sp=2
moe-tp_sp_plain 2 --batch 8 --strategy tp-sp=2 --tp-sp.sequence-parallel false
moe-tp_sp_whole 2 --batch 8 --strategy tp-sp=2 --tp-sp.experts whole
moe-ep_tp_sp 4 --batch 4 --strategy ep=2+tp-sp=2
moe-ep_tp_sp_all_to_all 4 --batch 4 --strategy ep=2+tp-sp=2 --ep.dispatch all-to-all
moe-ep_parts 2 --batch 4 --strategy ep=2+ddp --ep.parts 2
moe-ep_parts_all_to_all 2 --batch 4 --strategy ep=2+ddp --ep.parts 2 --ep.dispatch all-to-all
qwen3-activations_on_host 2 --batch 2 --accumulation 2 --strategy zero2 --offload-activations all'
# Adapters beside weights in 4 bits.
lora='--adapter lora --lora.targets all-linear --frozen-weights nf4:32'
layouts="$layouts
lora-one 1 --batch 8 $lora
lora-zero2 2 --batch 4 --strategy zero2 $lora
lora-zero3 2 --batch 4 --strategy zero3-offload --zero3-offload.param-persistence-threshold 100 $lora
lora-tp_sp 2 --batch 8 --strategy tp-sp=2 $lora
lora-tp_sp_zero3 4 --batch 4 --strategy tp-sp=2+zero3-offload --zero3-offload.param-persistence-threshold 100 $lora
lora-pipeline 2 --batch 2 --accumulation 4 --strategy pipeline=2 $lora"

[ -n "${ONLY:-}" ] && layouts=$(grep -E -- "-one |$ONLY" <<< "$layouts")
started=0
while read -r name ranks options; do
  model=qwen3-tiny
  [ "${name%%-*}" = moe ] && model=qwen3-moe-tiny
  # shellcheck disable=SC2086  # options are words
  job $((port + started)) "$name" "$ranks" --model $model $options &
  started=$((started + 1))
  [ $((started % ${AT_ONCE:-3})) = 0 ] && wait
done <<< "$layouts"
wait

passed=0 failed=0
while read -r name ranks _; do
  difference=
  [ -e "$out/$name.done" ] && difference=$(worst "$name")
  if [ -n "$difference" ] && awk -v d="$difference" 'BEGIN { exit !(d <= 1e-5) }'; then
    passed=$((passed + 1)) verdict=equal
  else
    failed=$((failed + 1)) verdict=FAILED
  fi
  printf '%-22s %d ranks  %-7s %s\n' "$name" "$ranks" "$verdict" "${difference:-no result}"
  [ $verdict = FAILED ] && grep -hE '^consist: |rror' "$out/$name".[0-9] | sort -u | head -4
done <<< "$layouts"
echo "PASSED $passed tests, failed $failed: losses of ranks that share a GPU"
[ $failed = 0 ]
