package filter

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"admitd/gate/reason"
	"admitd/signals"
	"admitd/ui/api"
)

type matcher = func(*api.DecisionItem) bool

// The tables below are never written to.
var flags = map[string]matcher{
	"retry":  func(d *api.DecisionItem) bool { return d.Decision.Attempt > 0 },
	"held":   func(d *api.DecisionItem) bool { return d.Decision.HeldMS > 0 },
	"stream": func(d *api.DecisionItem) bool { return d.Decision.Stream },
	"ticket": func(d *api.DecisionItem) bool { return d.Decision.Ticket },
	"ended":  func(d *api.DecisionItem) bool { return d.Outcome != nil },
	"slo":    func(d *api.DecisionItem) bool { return d.Outcome != nil && d.Outcome.SLOMet },
}

// fields take a value after a colon.
var fields = map[string]func(value string) (matcher, error){
	"decision": verdictField,
	"verdict":  verdictField,
	"reason":   reasonField,
	"code":     codeField,
	"tenant":   exactly(func(d *api.DecisionItem) string { return d.Decision.Tenant }),
	"class":    exactly(func(d *api.DecisionItem) string { return d.Decision.Class }),
	"model":    exactly(func(d *api.DecisionItem) string { return d.Decision.Model }),
	"path":     exactly(func(d *api.DecisionItem) string { return d.Decision.Path }),
	"key":      exactly(func(d *api.DecisionItem) string { return d.Decision.KeyID }),
	"session":  starting(func(d *api.DecisionItem) string { return d.Decision.Session }),
	"id":       starting(func(d *api.DecisionItem) string { return d.Decision.ID }),
	"rev":      starting(func(d *api.DecisionItem) string { return d.Decision.PolicyRev }),
	"ending":   exactly(ending),
}

func ending(d *api.DecisionItem) string {
	if d.Outcome == nil {
		return ""
	}
	return d.Outcome.Ending
}

func field(name, value string) (matcher, error) {
	make, ok := fields[name]
	if !ok {
		if _, ok := numbers[name]; ok {
			return nil, fmt.Errorf("%s is a number: write %s>100, with > >= < <= or =", quoted(name), name)
		}
		return nil, fmt.Errorf("no field %s; fields are %s", quoted(name), names(fields))
	}
	v, err := unquote(value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	m, err := make(v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

// unquote takes the double quotes off a value that is wholly in them.
func unquote(v string) (string, error) {
	if len(v) >= 2 && v[0] == '"' && v[len(v)-1] == '"' {
		v = v[1 : len(v)-1]
	}
	if strings.Contains(v, `"`) {
		return "", errors.New("double quotes must enclose the whole value")
	}
	if v == "" {
		return "", errors.New("a value must follow the colon")
	}
	return v, nil
}

func exactly(get func(*api.DecisionItem) string) func(string) (matcher, error) {
	return func(v string) (matcher, error) {
		return func(d *api.DecisionItem) bool { return get(d) == v }, nil
	}
}

func starting(get func(*api.DecisionItem) string) func(string) (matcher, error) {
	return func(v string) (matcher, error) {
		return func(d *api.DecisionItem) bool { return strings.HasPrefix(get(d), v) }, nil
	}
}

func verdictField(v string) (matcher, error) {
	switch v {
	case reason.VerdictAdmit, reason.VerdictDefer, reason.VerdictReject:
		return func(d *api.DecisionItem) bool { return d.Decision.Verdict == v }, nil
	}
	return nil, fmt.Errorf("%s is not admit, defer or reject", quoted(v))
}

// reasonField takes the beginning of a word of the catalogue.
func reasonField(v string) (matcher, error) {
	for _, c := range reason.Codes() {
		if strings.HasPrefix(string(c), v) {
			return func(d *api.DecisionItem) bool { return strings.HasPrefix(string(d.Decision.Reason), v) }, nil
		}
	}
	return nil, fmt.Errorf("no reason begins with %s", quoted(v))
}

// codeField takes a status such as 529, or a class such as 5xx.
func codeField(v string) (matcher, error) {
	if len(v) == 3 && v[0] >= '1' && v[0] <= '5' && v[1:] == "xx" {
		class := int(v[0] - '0')
		return func(d *api.DecisionItem) bool { s, ok := status(d); return ok && s/100 == class }, nil
	}
	want, err := strconv.Atoi(v)
	if err != nil || want < 100 || want > 599 {
		return nil, fmt.Errorf("%s is not an HTTP status from 100 to 599, nor of the form 5xx", quoted(v))
	}
	return func(d *api.DecisionItem) bool { s, ok := status(d); return ok && s == want }, nil
}

// status is what the caller got: the refusal's, or the outcome's.
func status(d *api.DecisionItem) (int, bool) {
	s := d.Decision.Status
	if d.Outcome != nil && d.Outcome.Status != 0 {
		s = d.Outcome.Status
	}
	return s, s != 0
}

// numbers are compared; the second result is false when the quantity is not known.
var numbers = map[string]func(*api.DecisionItem) (float64, bool){
	"est":      known(func(d *api.DecisionItem) int { return d.Decision.PromptTokens + d.Decision.OutputTokens }),
	"in":       known(func(d *api.DecisionItem) int { return d.Decision.PromptTokens }),
	"out":      known(func(d *api.DecisionItem) int { return d.Decision.OutputTokens }),
	"reserved": known(func(d *api.DecisionItem) int { return d.Decision.ReservedTokens }),
	"attempt":  known(func(d *api.DecisionItem) int { return d.Decision.Attempt }),
	"bytes":    known(func(d *api.DecisionItem) int { return d.Decision.BodyBytes }),
	"held_ms":  known(func(d *api.DecisionItem) int { return int(d.Decision.HeldMS) }),
	"retry_after": func(d *api.DecisionItem) (float64, bool) {
		v := d.Decision.RetryAfterMS
		return float64(v) / 1000, v > 0
	},
	"waiting": signal(signals.Waiting),
	"running": signal(signals.Running),
	"kv":      signal(signals.KVUsed),
	"ttft_ms": func(d *api.DecisionItem) (float64, bool) {
		if d.Outcome == nil {
			return 0, false
		}
		return pointer(d.Outcome.TTFTMS)
	},
	"tpot_ms": func(d *api.DecisionItem) (float64, bool) {
		if d.Outcome == nil {
			return 0, false
		}
		return pointer(d.Outcome.TPOTMS)
	},
	"total_ms": func(d *api.DecisionItem) (float64, bool) {
		if d.Outcome == nil {
			return 0, false
		}
		return d.Outcome.TotalMS, true
	},
}

func known(get func(*api.DecisionItem) int) func(*api.DecisionItem) (float64, bool) {
	return func(d *api.DecisionItem) (float64, bool) { return float64(get(d)), true }
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

func comparison(name, rest string) (matcher, error) {
	get, ok := numbers[name]
	if !ok {
		if _, ok := fields[name]; ok {
			return nil, fmt.Errorf("%s is not a number: write %s:value", quoted(name), name)
		}
		return nil, fmt.Errorf("no number %s; numbers are %s", quoted(name), names(numbers))
	}
	op := rest[:1]
	if strings.HasPrefix(rest[1:], "=") {
		op = rest[:2]
	}
	limit, err := strconv.ParseFloat(rest[len(op):], 64)
	if err != nil || math.IsNaN(limit) || math.IsInf(limit, 0) {
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
