#!/usr/bin/env bash
# Runs every native fuzz target for a time each, several side by side. usage: scripts/fuzz.sh 5s [name part]
set -euo pipefail
cd "$(dirname "$0")/.."
each=${1:-5s}
part=${2:-}
# Two for each core: a target often waits for its coordinator.
jobs=${FUZZJOBS:-$((2 * $(nproc)))}

one() {
  local name=$1 package=$2 each=$3 out
  # A worker that is starved for longer than a second past the end makes `go test` say "deadline exceeded" without a
  # failing input; that is no finding, and is run again alone.
  if out=$(go test -run '^$' -fuzz "^$name\$" -fuzztime "$each" -parallel 1 "$package" 2>&1) ||
    { ! grep -q 'Failing input' <<<"$out" && grep -q 'context deadline exceeded' <<<"$out" &&
      out=$(go test -run '^$' -fuzz "^$name\$" -fuzztime "$each" -parallel 1 "$package" 2>&1); }; then
    printf 'fuzz %-28s %-22s %s\n' "$name" "$package" "$(grep -oE 'execs: [0-9]+' <<<"$out" | tail -1)"
  else
    printf 'fuzz %s %s FAILED\n%s\n' "$name" "$package" "$out"
    return 1
  fi
}
export -f one

targets=$(git grep -E '^func Fuzz[A-Za-z0-9_]*\(' -- '*_test.go' | sort |
  sed -E 's#^(.*)/[^/:]*:func (Fuzz[A-Za-z0-9_]*).*#\2 ./\1#' | grep -- "$part" || true)
[ -n "$targets" ] || { echo "no fuzz targets found"; exit 1; }
# Built once, so that the clock of each target is spent on inputs.
awk '{print $2}' <<<"$targets" | sort -u | xargs go test -run '^$' >/dev/null
xargs -P "$jobs" -L 1 bash -c 'one "$1" "$2" '"$each" _ <<<"$targets" || { echo "fuzz: findings above"; exit 1; }
echo "fuzz: $(wc -l <<<"$targets") targets, $each each, no findings"
