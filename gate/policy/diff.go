package policy

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"admitd/gate/reason"
)

func dur(ns int64) time.Duration { return time.Duration(ns) }

// Diff lists what a change of policy changes, one line a setting, such as "params.max_waiting: 8 -> 4"; empty when
// the two mean the same. Both must have their defaults filled in, as Parse gives them.
func Diff(old, next Spec) []string {
	var out []string
	line := func(name, a, b string) {
		if a == b {
			return
		}
		out = append(out, fmt.Sprintf("%s: %s -> %s", name, orUnset(a), orUnset(b)))
	}
	line("policy", old.Policy, next.Policy)
	line("description", old.Description, next.Description)
	line("on_stale", string(old.OnStale), string(next.OnStale))
	before, after := old.Params.fields(), next.Params.fields()
	for i := range before {
		line("params."+before[i].name, before[i].text, after[i].text)
	}
	line("hold.max_wait", old.Hold.MaxWait.String(), next.Hold.MaxWait.String())
	line("hold.max_requests", strconv.Itoa(old.Hold.MaxRequests), strconv.Itoa(next.Hold.MaxRequests))
	line("retry_after.min", old.Retry.Min.String(), next.Retry.Min.String())
	line("retry_after.max", old.Retry.Max.String(), next.Retry.Max.String())
	for _, c := range codesOf(old.Codes, next.Codes) {
		line("codes."+string(c), codeText(old.Codes, c), codeText(next.Codes, c))
	}
	return out
}

func orUnset(s string) string {
	if s == "" {
		return "(not set)"
	}
	return s
}

func codeText(m map[reason.Code]int, c reason.Code) string {
	if n, ok := m[c]; ok {
		return strconv.Itoa(n)
	}
	return ""
}

func codesOf(maps ...map[reason.Code]int) []reason.Code {
	seen := map[reason.Code]bool{}
	var out []reason.Code
	for _, m := range maps {
		for c := range m {
			if !seen[c] {
				seen[c] = true
				out = append(out, c)
			}
		}
	}
	slices.Sort(out)
	return out
}
