package policy

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"admitd/gate/reason"
	"admitd/internal/strict"
)

// checker collects complaints, each at the place of its key.
type checker struct {
	file string
	src  []byte
	errs []error
}

func (c *checker) add(path, format string, args ...any) {
	c.errs = append(c.errs, strict.Errorf(c.file, c.src, path, format, args...))
}

// check validates a decoded file before defaults are filled in, and reports everything that is wrong with it.
func check(file string, src []byte, s *Spec) error {
	c := &checker{file: file, src: src}
	if k, ok := kindOf(s.Policy); !ok {
		if s.Policy == "" {
			c.add("policy", "the policy's name is missing; the policies are %s", strings.Join(Names(), ", "))
		} else {
			c.add("policy", "%q is not a policy; the policies are %s", s.Policy, strings.Join(Names(), ", "))
		}
	} else {
		c.known(k, s.Params)
	}
	if len(s.Description) > maxDescription {
		c.add("description", "%d bytes are too many; the limit is %d", len(s.Description), maxDescription)
	}
	if !slices.Contains([]OnStale{StaleLedger, StaleRefuse, StaleAdmit}, s.OnStale) {
		c.add("on_stale", "%q is not one of %s, %s, %s", s.OnStale, StaleLedger, StaleRefuse, StaleAdmit)
	}
	c.params(s.Params)
	c.hold(s.Hold)
	c.retry(s.Retry)
	c.codes(s.Codes)
	return strict.Join(c.errs...)
}

// given lists the parameters that a file sets, in the order of the struct.
func (p Params) given() []string {
	var out []string
	for _, f := range p.fields() {
		if f.text != "" {
			out = append(out, f.name)
		}
	}
	return out
}

// field is one parameter by name, with its value as text; "" when not given.
type field struct{ name, text string }

func (p Params) fields() []field {
	return []field{
		{"max_in_flight", show(p.MaxInFlight)},
		{"max_waiting", show(p.MaxWaiting)},
		{"max_kv_used", show(p.MaxKVUsed)},
		{"waiting_scale", show(p.WaitingScale)},
		{"kv_scale", show(p.KVScale)},
		{"max_saturation", show(p.MaxSaturation)},
	}
}

func show[T any](v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(*v)
}

func (c *checker) known(k kind, p Params) {
	for _, name := range p.given() {
		if slices.Contains(k.params, name) {
			continue
		}
		if len(k.params) == 0 {
			c.add("params."+name, "policy %s takes no parameters", k.name)
			continue
		}
		c.add("params."+name, "policy %s does not know this parameter; it knows %s", k.name, strings.Join(k.params, ", "))
	}
}

func (c *checker) params(p Params) {
	c.whole("params.max_in_flight", p.MaxInFlight, 1)
	c.whole("params.max_waiting", p.MaxWaiting, 0)
	c.fraction("params.max_kv_used", p.MaxKVUsed)
	c.positive("params.waiting_scale", p.WaitingScale)
	c.fraction("params.kv_scale", p.KVScale)
	c.positive("params.max_saturation", p.MaxSaturation)
}

const maxCount = 1_000_000

func (c *checker) whole(path string, v *int, least int) {
	if v != nil && (*v < least || *v > maxCount) {
		c.add(path, "%d is not from %d to %d", *v, least, maxCount)
	}
}

func (c *checker) fraction(path string, v *float64) {
	if v != nil && !(*v > 0 && *v <= 1) {
		c.add(path, "%v is not a fraction above 0 and up to 1 (0.95 means 95 %%)", *v)
	}
}

func (c *checker) positive(path string, v *float64) {
	if v != nil && (!(*v > 0) || math.IsInf(*v, 0) || *v > maxCount) {
		c.add(path, "%v is not above 0 and up to %d", *v, maxCount)
	}
}

func (c *checker) hold(h HoldSpec) {
	if h.MaxWait < 0 || h.MaxWait > maxHoldWait {
		c.add("hold.max_wait", "%s is not from 0s (no hold) to %s", h.MaxWait, maxHoldWait)
	}
	if h.MaxRequests < 0 || h.MaxRequests > maxHold {
		c.add("hold.max_requests", "%d is not from 0 (no hold) to %d", h.MaxRequests, maxHold)
	}
}

func (c *checker) retry(r RetrySpec) {
	for path, v := range map[string]int64{"retry_after.min": int64(r.Min), "retry_after.max": int64(r.Max)} {
		if v < int64(minRetry) || v > int64(maxRetry) {
			c.add(path, "%s is not from %s to %s, which is what all SDKs honour", dur(v), minRetry, maxRetry)
		}
	}
	if r.Min > r.Max {
		c.add("retry_after.min", "%s is above retry_after.max, %s", r.Min, r.Max)
	}
}

func (c *checker) codes(m map[reason.Code]int) {
	for code, status := range m {
		path := "codes." + string(code)
		e, ok := reason.Lookup(code)
		switch {
		case !ok:
			c.add(path, "%q is not a reason; docs/reasons.md lists them", code)
		case e.Status == 0:
			c.add(path, "%s is the reason of an admission, which has no status of its own", code)
		case status < 400 || status > 599:
			c.add(path, "%d is not a status from 400 to 599", status)
		}
	}
}
