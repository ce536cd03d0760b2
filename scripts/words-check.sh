#!/usr/bin/env bash
# Words that have no place in this repository: unfinished work, registry addresses in lock files, absolute homes.
set -euo pipefail
cd "$(dirname "$0")/.."
bad=0
find_words() { # title, pattern, pathspecs...
  local title=$1 pattern=$2
  shift 2
  if git grep -nIE "$pattern" -- "$@" ':!scripts/words-check.sh' ':!go.sum'; then
    echo "^ $title"
    bad=1
  fi
}
find_words "left for later" '\b(TODO|FIXME|XXX|HACK)\b' '*.go' '*.ts' '*.tsx' '*.md' '*.sh' '*.css'
find_words "a lock file that records where packages were fetched" '"resolved": *"' '*package-lock.json'
find_words "a path of one machine" '(/root/|/home/[a-z]+/)' '*.go' '*.md' '*.ts' '*.tsx' '*.yaml' '*.sh' 'Makefile'
find_words "tests that are skipped or that sleep" '\bt\.Skip|\b(it|test|describe)\.skip\b|time\.Sleep\(' '*_test.go' '*.test.ts' '*.spec.ts' '*.test.mjs'
exit $bad
