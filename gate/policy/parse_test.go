package policy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"admitd/gate/reason"
	"admitd/internal/strict"
	"admitd/signals"
	"admitd/test/seeds"
)

// TestBadPolicies holds every file in testdata/bad to the errors that its first lines promise, in their order.
func TestBadPolicies(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for line := range strings.SplitSeq(string(src), "\n") {
				if w, ok := strings.CutPrefix(line, "# want: "); ok {
					want = append(want, w)
				}
			}
			c, err := Compile(name, src)
			var se *strict.Error
			if !errors.As(err, &se) || c != nil {
				t.Fatalf("got %v and error %v, want a *strict.Error", c, err)
			}
			if len(se.Places) != len(want) {
				t.Fatalf("%d mistakes, want %d:\n%v", len(se.Places), len(want), err)
			}
			for i, p := range se.Places {
				if !strings.HasPrefix(p.String(), want[i]) {
					t.Errorf("mistake %d\n got %s\nwant %s", i+1, p, want[i])
				}
			}
		})
	}
}

func TestShippedPoliciesCompile(t *testing.T) {
	dir := "../../configs/policies"
	for _, name := range Names() {
		src, err := os.ReadFile(filepath.Join(dir, name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		c, err := Compile(name+".yaml", src)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if c.Policy.Name() != name {
			t.Errorf("%s.yaml holds policy %s", name, c.Policy.Name())
		}
		bare, err := Parse("", []byte("policy: "+name+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		// What a shipped file writes out is what one gets without writing it, but for the words and admit-all's hold.
		for _, line := range Diff(*bare, c.Spec) {
			if !strings.HasPrefix(line, "description:") && name != AdmitAll {
				t.Errorf("%s.yaml differs from the defaults: %s", name, line)
			}
		}
		if name == DualGate && string(src) != string(Default()) {
			t.Errorf("dual-gate.yaml is not the default policy's text")
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(Names()) {
		t.Errorf("%d files for %d policies (%v)", len(entries), len(Names()), err)
	}
}

func TestDefaultsAndRevision(t *testing.T) {
	src := []byte("policy: queue-depth\nhold: {max_wait: 1500ms}\n")
	c, err := Compile("q.yaml", src)
	if err != nil {
		t.Fatal(err)
	}
	two := 2
	want := Spec{
		Policy: QueueDepth, OnStale: StaleLedger, Params: Params{MaxWaiting: &two},
		Hold:  HoldSpec{MaxWait: 1500 * time.Millisecond, MaxRequests: 64},
		Retry: RetrySpec{Min: time.Second, Max: time.Minute},
	}
	if d := cmp.Diff(want, c.Spec); d != "" {
		t.Errorf("spec (-want +got):\n%s", d)
	}
	// printf 'policy: queue-depth\nhold: {max_wait: 1500ms}\n' | sha256sum
	if c.Rev != "df4fea9b1e5d" {
		t.Errorf("rev %s", c.Rev)
	}
	src[0] = 'X'
	if c.Source[0] != 'p' {
		t.Error("the compiled policy shares its source with the caller")
	}
	if got := c.StatusFor(reason.QueueDepth); got != 503 {
		t.Errorf("status %d for queue_depth", got)
	}
	c.Spec.Codes = map[reason.Code]int{reason.QueueDepth: 529}
	if got := c.StatusFor(reason.QueueDepth); got != 529 {
		t.Errorf("status %d for a mapped queue_depth", got)
	}
}

func TestDiff(t *testing.T) {
	a, err := Parse("", []byte("policy: queue-depth\n"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := Parse("", []byte("policy: dual-gate\non_stale: refuse\nhold: {max_wait: 0s}\nretry_after: {max: 30s}\ncodes: {saturated: 503}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"policy: queue-depth -> dual-gate",
		"on_stale: ledger -> refuse",
		"params.max_waiting: 2 -> 8",
		"params.max_kv_used: (not set) -> 0.95",
		"hold.max_wait: 2s -> 0s",
		"retry_after.max: 1m0s -> 30s",
		"codes.saturated: (not set) -> 503",
	}
	if d := cmp.Diff(want, Diff(*a, *b)); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
	// A comment or another order is another revision, but not another policy.
	c, err := Parse("", []byte("# quiet\nhold:\n  max_requests: 64\npolicy: queue-depth\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := Diff(*a, *c); len(got) != 0 {
		t.Errorf("a comment changed %v", got)
	}
}

func TestNeedsAreNamedWithWhatWasTried(t *testing.T) {
	c, err := Compile("", []byte("policy: kv-threshold\n"))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	meta := signals.Snapshot{Seq: 3, At: at, Engine: "vllm", Version: "0.32.0"}
	tried := func(signals.Name) []string { return []string{"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"} }

	var ne *NeedsError
	err = CheckNeeds(c, signals.NewSnapshot(meta), tried)
	if !errors.As(err, &ne) || ne.Signal != signals.KVUsed {
		t.Fatalf("got %v", err)
	}
	for _, part := range []string{"policy kv-threshold needs kv_used", "the engine (vllm 0.32.0) exports none of: vllm:kv_cache_usage_perc, vllm:gpu_cache_usage_perc"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %q", part, err)
		}
	}
	kv := signals.Signal{Name: signals.KVUsed, Value: 0.1, At: at, State: signals.Live}
	if err := CheckNeeds(c, signals.NewSnapshot(meta, kv), tried); err != nil {
		t.Errorf("the signal is there: %v", err)
	}
	kv.State = signals.Missing
	if err := CheckNeeds(c, signals.NewSnapshot(meta, kv), nil); err == nil {
		t.Error("a missing reading counted as exported")
	}
	if err := CheckNeeds(c, nil, nil); err != nil {
		t.Errorf("no scrape proves nothing: %v", err)
	}
	if err := CheckNeeds(c, signals.NewSnapshot(signals.Snapshot{Seq: 1, Err: "refused"}), nil); err != nil {
		t.Errorf("a failed scrape proves nothing: %v", err)
	}
	free, err := Compile("", []byte("policy: concurrency\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckNeeds(free, signals.NewSnapshot(meta), nil); err != nil {
		t.Errorf("concurrency needs nothing: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range Names() {
		f.Add("policy: " + name + "\n")
	}
	f.Add(string(Default()))
	for _, b := range seeds.Files(f, "testdata/bad/*.yaml", "../../configs/policies/*.yaml") {
		f.Add(string(b))
	}
	f.Add("policy: dual-gate\nparams: {max_waiting: 0, max_kv_used: 1}\nhold: {max_wait: 0s}\ncodes: {saturated: 503}\n")
	f.Add("policy: [a]\nparams: null\nhold:\n")
	f.Fuzz(func(t *testing.T, src string) {
		s, err := Parse("f.yaml", []byte(src))
		if err != nil {
			var se *strict.Error
			if !errors.As(err, &se) || len(se.Places) == 0 || s != nil {
				t.Fatalf("error without a place: %v", err)
			}
			return
		}
		c, err := Compile("f.yaml", []byte(src))
		if err != nil || c.Policy == nil {
			t.Fatalf("parses but does not compile: %v", err)
		}
		if s.Retry.Min < time.Second || s.Retry.Max > time.Minute || s.Retry.Min > s.Retry.Max || s.Hold.MaxWait < 0 {
			t.Fatalf("out of bounds: %+v", s)
		}
		d := c.Policy.Decide(Request{}, State{})
		if d.Verdict != Admit && (d.Verdict != Defer || d.Reason == "" || d.Message == "") {
			t.Fatalf("decision %+v", d)
		}
	})
}
