package policy

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"admitd/signals"
)

var testNow = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// TestDecide runs the scripts in testdata/decide. Commands:
//
//	policy           the input is a policy file, which judges from then on
//	decide KEY=V ... one decision. Keys: running, waiting, kv, cap are signals, written VALUE or VALUE/state with
//	                 an age in seconds after @ (waiting=3/stale@7); a signal not given is missing.
//	                 in_flight, unstarted, promised, reserved, slots are the ledger's; prompt, output, seqs the request's.
func TestDecide(t *testing.T) {
	datadriven.Walk(t, "testdata/decide", func(t *testing.T, path string) {
		var c *Compiled
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "policy":
				var err error
				if c, err = Compile("", []byte(d.Input)); err != nil {
					return err.Error() + "\n"
				}
				return fmt.Sprintf("%s, needs %v\n", c.Policy.Name(), needNames(c.Policy.Needs()))
			case "decide":
				r, s := scene(t, d)
				return describe(c.Policy.Decide(r, s))
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}

func needNames(needs []Need) []signals.Name {
	out := []signals.Name{}
	for _, n := range needs {
		out = append(out, n.Signal)
	}
	return out
}

func scene(t *testing.T, d *datadriven.TestData) (Request, State) {
	t.Helper()
	r := Request{Sequences: 1}
	s := State{Now: testNow}
	for _, arg := range d.CmdArgs {
		v := arg.Vals[0]
		switch arg.Key {
		case "running":
			s.Running = signalOf(t, signals.Running, v)
		case "waiting":
			s.Waiting = signalOf(t, signals.Waiting, v)
		case "kv":
			s.KVUsed = signalOf(t, signals.KVUsed, v)
		case "cap":
			s.KVCapacity = signalOf(t, signals.KVCapacity, v)
		default:
			n, err := strconv.Atoi(v)
			p := map[string]*int{
				"in_flight": &s.InFlight, "unstarted": &s.Unstarted, "promised": &s.Promised, "reserved": &s.ReservedTokens,
				"slots": &s.Slots, "prompt": &r.PromptTokens, "output": &r.OutputTokens, "seqs": &r.Sequences,
			}[arg.Key]
			if p == nil || err != nil {
				d.Fatalf(t, "argument %s=%s", arg.Key, v)
			}
			*p = n
		}
	}
	return r, s
}

func signalOf(t *testing.T, n signals.Name, text string) signals.Signal {
	t.Helper()
	sig := signals.Signal{Name: n, Unit: signals.UnitOf(n), State: signals.Live, At: testNow}
	text, age, aged := strings.Cut(text, "@")
	if aged {
		secs, err := strconv.Atoi(age)
		if err != nil {
			t.Fatal(err)
		}
		sig.At = testNow.Add(-time.Duration(secs) * time.Second)
	}
	value, state, ok := strings.Cut(text, "/")
	if ok {
		sig.State, sig.Why = signals.State(state), "as the script says"
	}
	var err error
	if sig.Value, err = strconv.ParseFloat(value, 64); err != nil {
		t.Fatal(err)
	}
	return sig
}

func describe(d Decision) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", d.Verdict, d.Reason)
	fmt.Fprintf(&b, "says: %s\n", d.Message)
	if d.Counterfactual != "" {
		fmt.Fprintf(&b, "flip: %s\n", d.Counterfactual)
	}
	for _, s := range d.Trace {
		fmt.Fprintf(&b, "  %-13s %s: %s", s.Result, s.Rule, s.Text)
		if s.Result == Pass || s.Result == Fail {
			fmt.Fprintf(&b, " (margin %.4g)", s.Margin)
		}
		if s.Note != "" && s.Note != s.Text {
			fmt.Fprintf(&b, " [%s]", s.Note)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestTraceShowsWhatWasSeen looks at one step whole: a person must be able to check it by hand.
func TestTraceShowsWhatWasSeen(t *testing.T) {
	c, err := Compile("", []byte("policy: queue-depth\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := State{
		Now: testNow, InFlight: 6, Slots: 4, Promised: 1,
		Running: signals.Signal{Name: signals.Running, Value: 4, Unit: signals.UnitRequests, State: signals.Live, At: testNow.Add(-300 * time.Millisecond)},
		Waiting: signals.Signal{Name: signals.Waiting, Value: 2, Unit: signals.UnitRequests, State: signals.Live, At: testNow.Add(-300 * time.Millisecond)},
	}
	step := c.Policy.Decide(Request{Sequences: 2}, s).Trace[0]
	if step.Rule != "waiting" || step.Limit != 2 || step.Margin != -3 || step.Result != Fail {
		t.Errorf("step %+v", step)
	}
	want := map[string]Input{
		"waiting":   {"waiting", 2, "requests", "live", 300},
		"running":   {"running", 4, "requests", "live", 300},
		"slots":     {"slots", 4, "requests", "ledger", 0},
		"promised":  {"promised", 1, "requests", "ledger", 0},
		"sequences": {"sequences", 2, "requests", "ledger", 0},
	}
	for _, in := range step.Inputs {
		if w, ok := want[in.Name]; !ok || w != in {
			t.Errorf("input %+v, want %+v", in, w)
		}
		delete(want, in.Name)
	}
	if len(want) > 0 {
		t.Errorf("inputs not shown: %v", want)
	}
}
