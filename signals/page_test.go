package signals

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"admitd/test/seeds"
)

// realPage is a capture of a loaded vLLM: 4 running, 8 waiting.
func realPage(tb testing.TB) []byte {
	tb.Helper()
	body, err := os.ReadFile("testdata/vllm-0.32.0/slots-full.txt")
	if err != nil {
		tb.Fatal(err)
	}
	return body
}

// readings absorbs one page into a fresh core.
func readings(body []byte) (*Snapshot, map[Name]Signal) {
	c := newCore(5*time.Second, 5*time.Second)
	snap := c.absorb(scraped{body: body, at: epoch, load: 12})
	out := map[Name]Signal{}
	for _, s := range snap.All(epoch) {
		out[s.Name] = s
	}
	return snap, out
}

// A page may end anywhere. What is still read of it must be what the whole page says.
func TestF40_PageCutInHalfNeverReadsLower(t *testing.T) {
	body := realPage(t)
	_, whole := readings(body)
	usable := 0
	for end := 0; end < len(body); end += 53 {
		for _, cut := range []int{end, end + bytes.IndexByte(body[end:], '\n') + 1} {
			snap, got := readings(body[:cut])
			if snap.Failures == 0 {
				usable++
			}
			for n, s := range got {
				if s.Present() && s.Value != whole[n].Value {
					t.Fatalf("cut at %d of %d: %s reads %g, the whole page says %g", cut, len(body), n, s.Value, whole[n].Value)
				}
			}
		}
	}
	if usable == 0 {
		t.Fatal("no cut page was usable, so nothing was compared")
	}
}

// Each family that carries a gauge is damaged in several ways: its own signal goes missing, no other changes.
func TestF40_OneBadFamilyLosesOnlyItself(t *testing.T) {
	families := map[string]Name{
		"vllm:num_requests_running": Running, "vllm:num_requests_waiting": Waiting,
		"vllm:kv_cache_usage_perc": KVUsed, "vllm:cache_config_info": KVCapacity, "vllm:engine_sleep_state": Awake,
	}
	damages := map[string]func(line string) string{
		"unclosed label": func(l string) string { return strings.Replace(l, `"`, "", 1) },
		"no value":       func(l string) string { return l[:strings.LastIndexByte(l, ' ')] },
		"words":          func(l string) string { return l[:strings.LastIndexByte(l, ' ')] + " lots" },
		"no equals sign": func(l string) string { return strings.Replace(l, "=", "", 1) },
		"bad escape":     func(l string) string { return strings.Replace(l, `="`, `="\q`, 1) },
		"twice":          func(l string) string { return l + "\n" + l[:strings.LastIndexByte(l, ' ')] + " 77" },
	}
	page := string(realPage(t))
	_, whole := readings([]byte(page))
	for name, signal := range families {
		for kind, damage := range damages {
			t.Run(name+"/"+kind, func(t *testing.T) {
				start := strings.Index(page, "\n"+name+"{") + 1
				end := start + strings.IndexByte(page[start:], '\n')
				_, got := readings([]byte(page[:start] + damage(page[start:end]) + page[end:]))
				if s := got[signal]; s.Present() || s.Why == "" || !s.Exported {
					t.Errorf("%s is %+v, want it missing with a reason", signal, s)
				}
				delete(got, signal)
				want := map[Name]Signal{}
				for n, s := range whole {
					if n != signal {
						want[n] = s
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("other signals changed (-whole +damaged):\n%s", diff)
				}
			})
		}
	}
}

func TestF40_WholePageErrors(t *testing.T) {
	tests := map[string]struct {
		body        string
		openMetrics bool
		want        error
	}{
		"empty":                    {body: "", want: errEmpty},
		"blank":                    {body: " \r\n\n", want: errEmpty},
		"html":                     {body: "\n<html>vllm:num_requests_running 1\n</html>\n", want: errHTML},
		"json":                     {body: "{\"error\":\"x\"}\n", want: errNotAPage},
		"no line end":              {body: "vllm:num_requests_running 1", want: errCut},
		"open metrics without EOF": {body: "vllm:num_requests_running 1\n", openMetrics: true, want: errNoEOF},
		"EOF without line end":     {body: "vllm:num_requests_running 1\n# EOF"},
		"open metrics":             {body: "vllm:num_requests_running 1\n# EOF\n", openMetrics: true},
		"windows line ends":        {body: "vllm:num_requests_running 1\r\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p, err := parsePage([]byte(tt.body), tt.openMetrics, wantedNames())
			if !errors.Is(err, tt.want) {
				t.Fatalf("error is %v, want %v", err, tt.want)
			}
			if err != nil {
				return
			}
			if f := p.families["vllm:num_requests_running"]; len(f.series) != 1 || f.series[0].value != 1 {
				t.Errorf("family is %+v, want one series of 1", f)
			}
		})
	}
}

// The library's parser has panicked on samples without a name, and does on a parser that was not constructed.
func TestF40_ParserPanicsAreErrors(t *testing.T) {
	for _, text := range []string{"{} 0\n", "{A} 0\n", "{A,} 0\n", "a{b=\"c\"", "a 1\n# TYPE a gauge\n", "\x00\xff{\n"} {
		t.Run(fmt.Sprintf("%q", text), func(t *testing.T) {
			parseText([]byte(text)) // must return
		})
	}
}

// A recipe must not be able to name a metric that the page reader then skips.
func TestTableIsConsistent(t *testing.T) {
	want := wantedNames()
	for _, n := range Names() {
		if len(table[n]) == 0 {
			t.Errorf("%s has no recipe", n)
		}
		if UnitOf(n) == "" {
			t.Errorf("%s has no unit", n)
		}
		for i, r := range table[n] {
			counted := r.kind == rate || r.kind == ratio || r.kind == mean
			if counted != (r.window > 0) {
				t.Errorf("%s recipe %d: window %s does not go with its kind", n, i, r.window)
			}
			if r.window > windowMax {
				t.Errorf("%s recipe %d: window %s is longer than the history kept", n, i, r.window)
			}
			if (r.kind == ratio) != (len(r.names) == 2 && r.kind != product) {
				t.Errorf("%s recipe %d: a ratio needs two names", n, i)
			}
			for _, name := range r.names {
				if !strings.HasPrefix(name, r.engine+":") {
					t.Errorf("%s recipe %d: %s is not a metric of %s", n, i, name, r.engine)
				}
				if strings.HasSuffix(name, "_total") && counted {
					t.Errorf("%s recipe %d: write %s without _total", n, i, name)
				}
				for _, s := range r.spellings(name) {
					if !want[s] {
						t.Errorf("%s recipe %d: %s is not picked from the page", n, i, s)
					}
				}
			}
		}
	}
	for n := range table {
		if UnitOf(n) == "" {
			t.Errorf("the table has %q, which is not a canonical signal", n)
		}
	}
}

func TestTried(t *testing.T) {
	want := []string{"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage", "sglang:full_token_usage"}
	if diff := cmp.Diff(want, Tried(KVUsed)); diff != "" {
		t.Errorf("Tried(KVUsed) (-want +got):\n%s", diff)
	}
	if got := Tried("no such signal"); got != nil {
		t.Errorf("Tried of an unknown name is %q, want nil", got)
	}
}

// essence is a page without the lines that nobody reads: a small seed is minimised faster.
func essence(page []byte) []byte {
	lines, _, _ := pickLines(page, wantedNames())
	var out []byte
	for _, l := range lines {
		out = append(out, l...)
	}
	return out
}

// Whatever pages follow each other, sums never come of fewer ranks than were there, and a life never takes back what it counted.
func FuzzLives(f *testing.F) {
	f.Add("vllm:num_requests_running{engine=\"0\"} 1\nvllm:num_requests_running{engine=\"1\"} 1\n", "vllm:num_requests_running{engine=\"1\"} 1\n")
	f.Add("process_start_time_seconds 1e9\nvllm:prompt_tokens_total 5\n", "process_start_time_seconds 2e9\nvllm:prompt_tokens_total 9\n")
	f.Add("vllm:generation_tokens_total{engine=\"0\",model_name=\"a\"} 5\nvllm:generation_tokens_created 1e9\n", "vllm:generation_tokens_total{engine=\"0\",model_name=\"b\"} 4\n")
	f.Fuzz(func(t *testing.T, a, b string) {
		c := newCore(5*time.Second, 5*time.Second)
		var life uint64
		var counted float64
		for i, body := range []string{a, b, a, b, b} {
			at := epoch.Add(time.Duration(i) * time.Second)
			snap := c.absorb(scraped{body: []byte(body), at: at})
			if snap.Life == life && snap.Failures == 0 {
				if n, known := snap.TokensTotal(); known && n < counted && !strings.Contains(a+b, "{") {
					t.Fatalf("%g tokens after %g in one life", n, counted)
				} else if known {
					counted = n
				}
			} else {
				counted = 0
			}
			life = snap.Life
			for _, cond := range snap.Conditions {
				if cond.Text == "" || cond.Code == MixedEngines && snap.Get(Running, at).Present() {
					t.Fatalf("condition %+v with running %+v", cond, snap.Get(Running, at))
				}
			}
		}
	})
}

// Whatever bytes come, a reading that is present is a number that its unit allows.
func FuzzAbsorb(f *testing.F) {
	for _, b := range seeds.Files(f, "testdata/vllm-0.32.0/*.txt") {
		f.Add(essence(b), false)
		f.Add(append(essence(b), "# EOF\n"...), true)
	}
	f.Add([]byte("vllm:num_requests_running{engine=\"0\"} NaN\nvllm:kv_cache_usage_perc 1e308\n"), false)
	f.Add([]byte("vllm:cache_config_info{kv_cache_size_tokens=\"1e400\"} 1\n# EOF\n"), true)
	f.Add([]byte("sglang:page_size 1e300\nsglang:num_pages 1e300\n{\"sglang:token_usage\",dp_rank=\"1\"} 0.5\n"), false)
	f.Add([]byte("vllm:prompt_tokens_total{a=\"\\\\\",b=\"}\"} 5 17 # {x=\"y\"} 3\n"), false)
	f.Fuzz(func(t *testing.T, body []byte, openMetrics bool) {
		c := newCore(5*time.Second, 5*time.Second)
		for i := range 3 {
			at := epoch.Add(time.Duration(i) * time.Second)
			snap := c.absorb(scraped{body: body, openMetrics: openMetrics, at: at, load: i})
			for _, s := range snap.All(at) {
				if !s.Present() {
					if s.Value != 0 || s.Why == "" || s.Source == "" {
						t.Fatalf("a missing reading needs no value, a reason and what was looked for: %+v", s)
					}
					continue
				}
				if why := implausible(s.Value); why != "" {
					t.Fatalf("%s %s", s.Name, why)
				}
				if s.Unit == UnitFraction && s.Value > 1 {
					t.Fatalf("%s is %g", s.Name, s.Value)
				}
			}
		}
	})
}

// BenchmarkAbsorb is what one scrape costs admitd, beside the 4 ms that it costs the engine.
func BenchmarkAbsorb(b *testing.B) {
	body := realPage(b)
	c := newCore(5*time.Second, 5*time.Second)
	at := epoch
	b.ReportAllocs()
	for b.Loop() {
		at = at.Add(100 * time.Millisecond)
		c.absorb(scraped{body: body, at: at, load: 12})
	}
}

func TestLoadReportsThatCannotBeUsed(t *testing.T) {
	for _, text := range []string{
		"", "TEXT", "JSON", "TEXT named_metrics.kv_cache_usage_perc", "TEXT named_metrics.kv_cache_usage_perc=NaN",
		"TEXT named_metrics.kv_cache_usage_perc=-0.1, named_metrics.num_requests_waiting=-1", "TEXT named_metrics.kv_cache_usage_perc=1.5",
		"TEXT named_metrics.other=0.5, cpu_utilization=0.3", `JSON {"named_metrics": {"kv_cache_usage_perc": "0.5"}}`, "JSON {", "BIN AAAA",
		"TEXT named_metrics.kv_cache_usage_perc=0.5" + strings.Repeat(" ", maxORCA),
	} {
		if o, ok := ParseORCA(http.Header{ORCAHeader: {text}}); ok {
			t.Errorf("%.80q is read as %+v", text, o)
		}
	}
	if _, ok := ParseORCA(http.Header{}); ok {
		t.Error("a report was read where there is none")
	}
}

func FuzzORCA(f *testing.F) {
	f.Add("TEXT named_metrics.kv_cache_usage_perc=0.4, named_metrics.num_requests_waiting=2.0")
	f.Add(`JSON {"named_metrics": {"kv_cache_usage_perc": 0.0, "num_requests_waiting": 0.0}}`)
	f.Add("text kv_cache_usage_perc=1e-3,kv_cache_usage_perc=0.9")
	f.Fuzz(func(t *testing.T, text string) {
		o, ok := ParseORCA(http.Header{ORCAHeader: {text}})
		if o.KVUsed != nil && !(*o.KVUsed >= 0 && *o.KVUsed <= 1) {
			t.Errorf("%q: KV use %g", text, *o.KVUsed)
		}
		if o.Waiting != nil && !(*o.Waiting >= 0) {
			t.Errorf("%q: waiting %g", text, *o.Waiting)
		}
		if ok && o.KVUsed == nil && o.Waiting == nil {
			t.Errorf("%q is a report without numbers", text)
		}
	})
}
