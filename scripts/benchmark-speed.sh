#!/usr/bin/env bash
# Measures what admitd costs beside other relays on this machine and writes the tables of docs/benchmarks.md. Peers that
# are not on PATH are named there as absent: nginx and haproxy are Debian packages; vllm-router comes with
# `pip install vllm-router` (VLLM_ROUTER names its program). Arguments go to the driver: -runs 1 -open "" for a quick look.
set -euo pipefail
cd "$(dirname "$0")/.."
for peer in nginx haproxy envoy; do
  command -v "$peer" >/dev/null || echo "not found, so not measured: $peer" >&2
done
ulimit -n "$(ulimit -Hn)"
driver=$(mktemp -d)
trap 'rm -rf "$driver"' EXIT
go build -trimpath -o "$driver/speedbench" ./internal/speedbench
"$driver/speedbench" run -admitd bin/admitd -doc docs/benchmarks.md -vllm-router "${VLLM_ROUTER:-}" "$@"
