#!/usr/bin/env bash
# Every relative link in the Markdown files points to a file that is there.
set -euo pipefail
cd "$(dirname "$0")/.."
bad=0
while read -r f; do
  while read -r target; do
    path=${target%%#*}
    [ -z "$path" ] && continue
    [ -e "$(dirname "$f")/$path" ] || { echo "$f links to $target, which is not there"; bad=1; }
  done < <(grep -oE '\]\([^)# ][^) ]*\)' "$f" | sed -E 's/^\]\(//; s/\)$//' | grep -vE '^(https?:|mailto:)' || true)
done < <(git ls-files '*.md')
exit $bad
