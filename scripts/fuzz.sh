#!/usr/bin/env bash
# Runs every native fuzz target for a time each. usage: scripts/fuzz.sh 5s
set -euo pipefail
cd "$(dirname "$0")/.."
each=${1:-5s}
total=0
while IFS=: read -r file line; do
  name=$(sed -E 's/^func (Fuzz[A-Za-z0-9_]*).*/\1/' <<<"$line")
  package=./$(dirname "$file")
  printf 'fuzz %-28s %s\n' "$name" "$package"
  out=$(go test -run '^$' -fuzz "^$name\$" -fuzztime "$each" "$package" 2>&1) || { echo "$out"; exit 1; }
  total=$((total + 1))
done < <(git grep -E '^func Fuzz[A-Za-z0-9_]*\(' -- '*_test.go' | sort)
[ "$total" -gt 0 ] || { echo "no fuzz targets found"; exit 1; }
echo "fuzz: $total targets, $each each, no findings"
