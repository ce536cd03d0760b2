package journal

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"admitd/signals"
)

// Every field of every kind of entry, filled with anything: the line is what encoding/json writes. A field that is added
// to a record and forgotten here fails too.
func TestLinesAreWhatEncodingJSONWrites(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	var enc encoder
	for i := range 3000 {
		e := Entry{Seq: rnd.Uint64(), At: time.Unix(rnd.Int64N(1<<32), rnd.Int64N(2)*rnd.Int64N(1e9)).UTC()}
		switch i % 3 {
		case 0:
			e.Kind, e.Decision = KindDecision, &Decision{}
			fillAny(rnd, reflect.ValueOf(e.Decision).Elem())
		case 1:
			e.Kind, e.Outcome = KindOutcome, &Outcome{}
			fillAny(rnd, reflect.ValueOf(e.Outcome).Elem())
		case 2:
			e.Kind, e.Event = KindEvent, &Event{}
			fillAny(rnd, reflect.ValueOf(e.Event).Elem())
		}
		want, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if e.Decision != nil && i%2 == 0 {
			// What is worked out late is written like what was there.
			d := e.Decision
			detail := Detail{d.Signals, d.Trace, d.Counterfactual}
			d.Signals, d.Trace, d.Counterfactual = nil, nil, ""
			d.Late = &Late{Filler: there{detail}}
		}
		got, err := enc.entry(&e)
		if err != nil || string(got) != string(want) {
			t.Fatalf("%v\n%s\nwant\n%s", err, got, want)
		}
	}
}

// there is a Filler for what is known.
type there struct{ Detail }

func (t there) Fill(all *Detail) {
	all.Signals = append(all.Signals, t.Signals...)
	all.Trace, all.Counterfactual = t.Trace, t.Counterfactual
}

func (there) Seen(signals.Name) *float64 { return nil }

func TestValueThatJSONCannotSayIsAnError(t *testing.T) {
	v := math.Inf(1)
	var enc encoder
	if _, err := enc.entry(&Entry{Kind: KindOutcome, Outcome: &Outcome{TTFTMS: &v}}); err == nil {
		t.Error("an infinity was written")
	}
	if _, err := enc.entry(&Entry{Kind: KindOutcome, Outcome: &Outcome{}}); err != nil {
		t.Errorf("the next entry: %v", err)
	}
}

// fillAny sets what can be set, sometimes to nothing.
func fillAny(rnd *rand.Rand, v reflect.Value) {
	if v.Type() == reflect.TypeFor[*Late]() || v.Kind() != reflect.Struct && rnd.IntN(4) == 0 {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fillAny(rnd, field)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillAny(rnd, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), rnd.IntN(4), 4))
		for i := range v.Len() {
			fillAny(rnd, v.Index(i))
		}
	case reflect.String:
		v.SetString([]string{"plain", "", `quo"te`, "<b>&amp;", "tab\t", "ünï→", "\xff\u2028", `back\slash`}[rnd.IntN(8)])
	case reflect.Bool:
		v.SetBool(rnd.IntN(2) == 0)
	case reflect.Float64:
		v.SetFloat([]float64{0, 0.1, -3, 1e21, 1e-7, 123456.789, math.MaxFloat64, -5e-324, 2.5}[rnd.IntN(9)])
	case reflect.Uint64:
		v.SetUint(rnd.Uint64())
	default:
		v.SetInt(rnd.Int64N(2000) - 100)
	}
}
