#!/usr/bin/env bash
# Installs what a fresh Debian machine lacks for building and testing admitd: a C compiler (NVML bindings and the
# race detector need cgo), Chromium for the browser tests, Python for the real engine. Says what it does; does nothing
# when all is there.
# usage: scripts/deps.sh [build|test|vllm]
set -euo pipefail

want=()
need() { # command, package
  command -v "$1" >/dev/null 2>&1 || want+=("$2")
}

case "${1:-build}" in
  build) need gcc build-essential ;;
  test) need gcc build-essential; need chromium chromium ;;
  vllm) need gcc build-essential; python3 -c 'import venv, ensurepip' 2>/dev/null || want+=(python3-venv) ;;
  *) echo "usage: $0 [build|test|vllm]" >&2; exit 2 ;;
esac

for tool in go node npm; do
  command -v "$tool" >/dev/null 2>&1 || { echo "admitd needs $tool: Go 1.26 and Node 20 or newer with npm" >&2; exit 1; }
done

[ ${#want[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null 2>&1 || { echo "please install as root: apt-get install ${want[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "installing ${want[*]} ..."
"${as_root[@]}" apt-get update -qq
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${want[@]}" >/dev/null
