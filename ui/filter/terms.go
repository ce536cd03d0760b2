package filter

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"admitd/gate/reason"
	"admitd/signals"
	"admitd/ui/api"
)

type matcher = func(*api.DecisionItem) bool

// The tables below are never written to.
var flags = map[string]matcher{
	"admit":   verdict(reason.VerdictAdmit),
	"defer":   verdict(reason.VerdictDefer),
	"reject":  verdict(reason.VerdictReject),
	"retry":   func(d *api.DecisionItem) bool { return d.Decision.Attempt > 0 },
	"held":    func(d *api.DecisionItem) bool { return d.Decision.HeldMS > 0 },
	"stream":  func(d *api.DecisionItem) bool { return d.Decision.Stream },
	"ticket":  func(d *api.DecisionItem) bool { return d.Decision.Ticket },
	"met":     fate(met),
	"missed":  fate(missed),
	"running": fate(running),
}

func verdict(v string) matcher {
	return func(d *api.DecisionItem) bool { return d.Decision.Verdict == v }
}

// What became of an arrival.
const (
	met     = "met"
	missed  = "missed"
	running = "running"
	none    = "none"
)

func outcome(d *api.DecisionItem) string {
	switch {
	case d.Decision.Verdict != reason.VerdictAdmit:
		return none
	case d.Outcome == nil:
		return running
	case d.Outcome.SLOMet:
		return met
	}
	return missed
}

func fate(want string) matcher {
	return func(d *api.DecisionItem) bool { return outcome(d) == want }
}

// words are fields whose beginning is compared. valid, where given, lists what a value may be the beginning of.
var words = map[string]struct {
	get   func(*api.DecisionItem) string
	valid []string
}{
	"decision": {func(d *api.DecisionItem) string { return d.Decision.Verdict },
		[]string{reason.VerdictAdmit, reason.VerdictDefer, reason.VerdictReject}},
	"reason":  {func(d *api.DecisionItem) string { return string(d.Decision.Reason) }, reasonWords()},
	"tenant":  {get: func(d *api.DecisionItem) string { return d.Decision.Tenant }},
	"class":   {get: func(d *api.DecisionItem) string { return d.Decision.Class }},
	"session": {get: func(d *api.DecisionItem) string { return d.Decision.Session }},
	"id":      {get: func(d *api.DecisionItem) string { return d.Decision.ID }},
	"key":     {get: func(d *api.DecisionItem) string { return d.Decision.KeyID }},
	"model":   {get: func(d *api.DecisionItem) string { return d.Decision.Model }},
	"path":    {get: func(d *api.DecisionItem) string { return d.Decision.Path }},
	"rev":     {get: func(d *api.DecisionItem) string { return d.Decision.PolicyRev }},
	"outcome": {outcome, []string{met, missed, running, none}},
	"ending": {get: func(d *api.DecisionItem) string {
		if d.Outcome == nil {
			return ""
		}
		return d.Outcome.Ending
	}},
}

func reasonWords() []string {
	var out []string
	for _, c := range reason.Codes() {
		out = append(out, string(c))
	}
	return out
}

func fieldNames() string { return names(words) + ", code" }

func field(name, value string) (matcher, error) {
	choices, err := choicesOf(value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if name == "code" {
		return codeField(choices)
	}
	f, ok := words[name]
	if !ok {
		if _, ok := numbers[name]; ok {
			return nil, fmt.Errorf("%s is a number: write %s>100, with > >= < <= or =", quoted(name), name)
		}
		return nil, fmt.Errorf("no field %s; fields are %s", quoted(name), fieldNames())
	}
	for _, c := range choices {
		if f.valid != nil && !beginsAny(f.valid, c) {
			return nil, fmt.Errorf("%s: %s is not the beginning of any of %s", name, quoted(c), strings.Join(f.valid, ", "))
		}
	}
	return func(d *api.DecisionItem) bool {
		have := strings.ToLower(f.get(d))
		for _, c := range choices {
			if strings.HasPrefix(have, c) || c == none && have == "" {
				return true
			}
		}
		return false
	}, nil
}

func beginsAny(valid []string, c string) bool {
	for _, v := range valid {
		if strings.HasPrefix(v, c) {
			return true
		}
	}
	return false
}

// choicesOf cuts a value at its commas; each may be in double quotes as a whole.
func choicesOf(value string) ([]string, error) {
	if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
		value = value[1 : len(value)-1]
	}
	if strings.Contains(value, `"`) {
		return nil, errors.New("double quotes must enclose the whole value")
	}
	choices := strings.Split(strings.ToLower(value), ",")
	if slices.Contains(choices, "") {
		return nil, errors.New("a value must follow the colon and every comma")
	}
	return choices, nil
}

// codeField takes statuses such as 529, and classes such as 5xx.
func codeField(choices []string) (matcher, error) {
	var ranges [][2]int
	for _, c := range choices {
		if len(c) == 3 && c[0] >= '1' && c[0] <= '5' && c[1:] == "xx" {
			first := int(c[0]-'0') * 100
			ranges = append(ranges, [2]int{first, first + 99})
			continue
		}
		want, err := strconv.Atoi(c)
		if err != nil || want < 100 || want > 599 {
			return nil, fmt.Errorf("code: %s is not an HTTP status from 100 to 599, nor of the form 5xx", quoted(c))
		}
		ranges = append(ranges, [2]int{want, want})
	}
	return func(d *api.DecisionItem) bool {
		s, ok := status(d)
		for _, r := range ranges {
			if ok && s >= float64(r[0]) && s <= float64(r[1]) {
				return true
			}
		}
		return false
	}, nil
}

// status is what the caller got: the refusal's, or the outcome's.
func status(d *api.DecisionItem) (float64, bool) {
	s := d.Decision.Status
	if d.Outcome != nil && d.Outcome.Status != 0 {
		s = d.Outcome.Status
	}
	return float64(s), s != 0
}

// numbers are compared; the second result is false when the quantity is not known. Times are in milliseconds.
var numbers = map[string]func(*api.DecisionItem) (float64, bool){
	"est":      known(func(d *api.DecisionItem) int { return d.Decision.PromptTokens }),
	"out":      known(func(d *api.DecisionItem) int { return d.Decision.OutputTokens }),
	"reserved": known(func(d *api.DecisionItem) int { return d.Decision.ReservedTokens }),
	"attempt":  known(func(d *api.DecisionItem) int { return d.Decision.Attempt }),
	"bytes":    known(func(d *api.DecisionItem) int { return d.Decision.BodyBytes }),
	"held":     known(func(d *api.DecisionItem) int { return int(d.Decision.HeldMS) }),
	"retry_after": func(d *api.DecisionItem) (float64, bool) {
		return float64(d.Decision.RetryAfterMS), d.Decision.RetryAfterMS > 0
	},
	"code":    status,
	"waiting": signal(signals.Waiting),
	"running": signal(signals.Running),
	"kv":      signal(signals.KVUsed),
	"ttft":    ended(func(o *api.DecisionItem) *float64 { return o.Outcome.TTFTMS }),
	"tpot":    ended(func(o *api.DecisionItem) *float64 { return o.Outcome.TPOTMS }),
	"total":   ended(func(o *api.DecisionItem) *float64 { return &o.Outcome.TotalMS }),
}

func known(get func(*api.DecisionItem) int) func(*api.DecisionItem) (float64, bool) {
	return func(d *api.DecisionItem) (float64, bool) { return float64(get(d)), true }
}

func ended(get func(*api.DecisionItem) *float64) func(*api.DecisionItem) (float64, bool) {
	return func(d *api.DecisionItem) (float64, bool) {
		if d.Outcome == nil {
			return 0, false
		}
		return pointer(get(d))
	}
}

func pointer(p *float64) (float64, bool) {
	if p == nil {
		return 0, false
	}
	return *p, true
}

func signal(n signals.Name) func(*api.DecisionItem) (float64, bool) {
	return func(d *api.DecisionItem) (float64, bool) {
		for i := range d.Decision.Signals {
			if d.Decision.Signals[i].Name == n {
				return pointer(d.Decision.Signals[i].Value)
			}
		}
		return 0, false
	}
}

// number reads 4000, 4k, 2M, 90%, 250ms or 1.5s (as milliseconds).
func number(text string) (float64, bool) {
	scale := 1.0
	for _, u := range []struct {
		suffix string
		scale  float64
	}{{"ms", 1}, {"s", 1e3}, {"k", 1e3}, {"m", 1e6}, {"M", 1e6}, {"%", 0.01}} {
		if rest, ok := strings.CutSuffix(text, u.suffix); ok {
			text, scale = rest, u.scale
			break
		}
	}
	if text == "" || strings.Trim(text, "0123456789.-") != "" {
		return 0, false
	}
	v, err := strconv.ParseFloat(text, 64)
	return v * scale, err == nil && !math.IsInf(v*scale, 0)
}

func comparison(name, rest string) (matcher, error) {
	get, ok := numbers[name]
	if !ok {
		if _, ok := words[name]; ok {
			return nil, fmt.Errorf("%s is not a number: write %s:value", quoted(name), name)
		}
		return nil, fmt.Errorf("no number %s; numbers are %s", quoted(name), names(numbers))
	}
	op := rest[:1]
	if strings.HasPrefix(rest[1:], "=") {
		op = rest[:2]
	}
	limit, ok := number(rest[len(op):])
	if !ok {
		return nil, fmt.Errorf("%s: %s is not a number", name, quoted(rest[len(op):]))
	}
	var holds func(v float64) bool
	switch op {
	case ">":
		holds = func(v float64) bool { return v > limit }
	case ">=":
		holds = func(v float64) bool { return v >= limit }
	case "<":
		holds = func(v float64) bool { return v < limit }
	case "<=":
		holds = func(v float64) bool { return v <= limit }
	case "=":
		holds = func(v float64) bool { return v == limit }
	default:
		return nil, fmt.Errorf("%s: %s is not one of > >= < <= =", name, quoted(op))
	}
	return func(d *api.DecisionItem) bool { v, ok := get(d); return ok && holds(v) }, nil
}
