#!/usr/bin/env bash
# Holds the code to its size limits: p90 of functions 40 lines, none over 100, no Go or web source file over 500, main 60.
set -euo pipefail
cd "$(dirname "$0")/.."
bad=0
lengths=$(mktemp)
trap 'rm -f "$lengths"' EXIT
while read -r f; do
  lines=$(wc -l <"$f")
  [ "$lines" -le 500 ] || { echo "$f has $lines lines; the limit is 500"; bad=1; }
done < <(git ls-files '*.go' 'ui/web/src/*.ts' 'ui/web/src/*.tsx' 'ui/web/src/**/*.ts' 'ui/web/src/**/*.tsx' 'ui/web/src/*.css')
while read -r f; do
  awk -v f="$f" '/^func /{s=NR; n=$0} /^}/{if(s){print NR-s+1 "\t" f ":" s "\t" n; s=0}}' "$f"
done < <(git ls-files '*.go' | grep -v '_test\.go$') >"$lengths"
awk -F'\t' '$1>100{print $2 " has a function of " $1 " lines; the limit is 100: " $3; bad=1} END{exit bad}' "$lengths" || bad=1
awk -F'\t' '$3 ~ /^func main\(/ && $1>60{print $2 ": main has " $1 " lines; the limit is 60"; bad=1} END{exit bad}' "$lengths" || bad=1
p90=$(cut -f1 "$lengths" | sort -n | awk '{a[NR]=$1} END{print NR ? a[int(NR*0.9)+(NR*0.9>int(NR*0.9))] : 0}')
[ "$p90" -le 40 ] || { echo "the 90th percentile of function lengths is $p90; the limit is 40"; bad=1; }
exit $bad
