#!/usr/bin/env bash
# Runs every native fuzz target for a time each, several side by side. usage: scripts/fuzz.sh [time] [name part]
# The time is 5s when none is given; FUZZJOBS is how many run at once.
set -euo pipefail
cd "$(dirname "$0")/.."
each=${1:-5s}
part=${2:-}
# Five for each core: a target often waits for its coordinator, and what counts here is the wall clock of each.
jobs=${FUZZJOBS:-$((5 * $(nproc)))}
cache=$(go env GOCACHE)/fuzz
bins=$(mktemp -d)
trap 'rm -rf "$bins"' EXIT

targets=$(git grep --untracked -E '^func Fuzz[A-Za-z0-9_]*\(' -- '*_test.go' | sort |
  sed -E 's#^(.*)/[^/:]*:func (Fuzz[A-Za-z0-9_]*).*#\2 \1#' | grep -- "$part" || true)
[ -n "$targets" ] || { echo "no fuzz targets found"; exit 1; }

# Built once for each package, so that the time of a target is spent on inputs. -fuzz makes the build instrumented.
build() { go test -c -fuzz . -o "$2/$(tr / . <<<"$1")" "./$1"; }
# A worker that is starved for longer than a second past the end makes the run fail with these words and no input: the
# time was spent, nothing was found. A target that hangs is another matter: it leaves an input after ten seconds.
overrun() {
  grep -qx ' *context deadline exceeded' <<<"$1" && ! grep -qE 'Failing input|seed corpus entry|^panic:|^fatal error:|DATA RACE' <<<"$1"
}
# Making an input smaller may otherwise take a minute each time, in which nothing else is tried.
one() {
  local name=$1 package=$2 each=$3 bins=$4 cache=$5 out note='' try
  for try in 1 2; do
    if out=$(cd "$package" && "$bins/$(tr / . <<<"$package")" -test.run '^$' -test.fuzz "^$name\$" -test.fuzztime "$each" \
      -test.parallel 1 -test.fuzzminimizetime 100x -test.fuzzcachedir "$cache/admitd/$package" 2>&1); then
      break
    elif ! overrun "$out"; then
      printf 'fuzz %s %s FAILED\n%s\n' "$name" "$package" "$out"
      return 1
    fi
    note=" (ran over its time $try of 2 tries)"
  done
  printf 'fuzz %-20s %-18s %s%s\n' "$name" "$package" "$(grep -oE 'execs: [0-9]+|baseline coverage: [0-9]+/[0-9]+' <<<"$out" | tail -1)" "$note"
}
export -f build one overrun

began=$SECONDS
awk '{print $2}' <<<"$targets" | sort -u | xargs -P "$(nproc)" -I{} bash -c 'build "$1" "$2"' _ {} "$bins"
built=$SECONDS
xargs -P "$jobs" -L 1 bash -c 'one "$1" "$2" "$3" "$4" "$5"' _ <<<"$(sed "s#\$# $each $bins $cache#" <<<"$targets")" ||
  { echo "fuzz: findings above"; exit 1; }
echo "fuzz: $(wc -l <<<"$targets") targets, $each each, no findings ($((built - began)) s to build, $((SECONDS - built)) s to run)"
