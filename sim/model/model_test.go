package model

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

// drain runs an engine to its end and returns every event and the time of the last one.
func drain(t *testing.T, e *Engine) []Event {
	t.Helper()
	var all []Event
	for n := 0; ; n++ {
		at, ok := e.Next()
		if !ok {
			return all
		}
		if n > 1_000_000 {
			t.Fatal("the engine does not come to an end")
		}
		all = append(all, e.Advance(at)...)
		if err := e.Check(); err != nil {
			t.Fatalf("at %v: %v", at, err)
		}
	}
}

func newEngine(t testing.TB, cfg Config) *Engine {
	t.Helper()
	if cfg.Profile.Name == "" {
		p, err := ProfileByName("cpu-smollm2-135m")
		if err != nil {
			t.Fatal(err)
		}
		cfg.Profile = p
	}
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func submit(t testing.TB, e *Engine, now time.Duration, r Request) {
	t.Helper()
	if err := e.Submit(now, r); err != nil {
		t.Fatal(err)
	}
}

// unique is a hash chain that no other id shares.
func unique(id ID, blocks int) []uint64 {
	c := NewChain(uint64(id)*7919, 1)
	for i := range blocks {
		c.Add(uint32(i))
	}
	return c.Hashes()
}

// play runs a random schedule of arrivals, cancellations and pauses decided by the bytes of data.
func play(t *testing.T, data []byte) {
	next := func() int {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return int(b)
	}
	e := newEngine(t, Config{
		Blocks: 4 + next()%60, BlockTokens: 1 + next()%32, MaxSeqs: 1 + next()%8, MaxBatchedTokens: 1 + next()*2,
		MaxModelLen: 512, AdmitPartialPrompt: next()%2 == 0, NoPrefixCache: next()%4 == 0,
	})
	capacity := e.Config().usableTokens()
	ended := map[ID]int{}
	live := map[ID]int{}
	now := time.Duration(0)
	note := func(events []Event) {
		for _, ev := range events {
			if live[ev.ID] == 0 {
				t.Fatalf("event %v for a request that is not in flight", ev)
			}
			if ev.Kind == Finished {
				ended[ev.ID]++
				delete(live, ev.ID)
			}
		}
	}
	id := ID(0)
	for len(data) > 0 {
		switch next() % 4 {
		case 0, 1:
			id++
			prompt, out := 1+next(), 1+next()
			if prompt+out > min(capacity, 512) {
				continue
			}
			prefix := unique(ID(next()%3), (prompt+out)/e.Config().BlockTokens)
			if next()%3 == 0 {
				prefix = unique(1000+id, len(prefix))
			}
			if err := e.Submit(now, Request{ID: id, PromptTokens: prompt, MaxTokens: out, NaturalTokens: next(), Prefix: prefix}); err != nil {
				t.Fatal(err)
			}
			live[id] = 1
		case 2:
			now += time.Duration(next()) * time.Millisecond
			note(e.Advance(now))
		case 3:
			victim := ID(next())
			if e.Cancel(now, victim) != (live[victim] == 1) {
				t.Fatalf("cancel of %d disagrees with what is in flight", victim)
			}
			delete(live, victim)
		}
		if err := e.Check(); err != nil {
			t.Fatal(err)
		}
		st := e.Stats()
		if st.Free+st.Cached+st.Used != st.Usable || st.Running+st.Waiting+st.Arriving != len(live) {
			t.Fatalf("stats do not add up: %+v with %d in flight", st, len(live))
		}
	}
	note(drain(t, e))
	if st := e.Stats(); len(live) != 0 || st.Used != 0 || e.InFlight() != 0 {
		t.Fatalf("after everything ended: %d live, %+v", len(live), st)
	}
	for id, n := range ended {
		if n != 1 {
			t.Fatalf("request %d ended %d times", id, n)
		}
	}
}

func FuzzAnySchedule(f *testing.F) {
	f.Add([]byte{10, 15, 3, 20, 0, 0, 0, 40, 30, 0, 0, 9, 0, 200, 30, 1, 0, 9, 2, 50, 3, 1, 2, 255})
	r := rand.New(rand.NewPCG(1, 2))
	for range 24 {
		b := make([]byte, 600)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4096 {
			return // long inputs only take longer
		}
		play(t, data)
	})
}

func TestTheSameCallsGiveTheSameEvents(t *testing.T) {
	run := func() []Event {
		e := newEngine(t, Config{Blocks: 20, BlockTokens: 8, MaxSeqs: 4, MaxModelLen: 120})
		for i := range 12 {
			submit(t, e, 0, Request{ID: ID(i + 1), PromptTokens: 20 + i, MaxTokens: 40, Prefix: unique(ID(i%2), 7)})
		}
		return drain(t, e)
	}
	if a, b := run(), run(); !reflect.DeepEqual(a, b) || len(a) < 100 {
		t.Fatalf("two runs of the same calls differ (%d and %d events)", len(a), len(b))
	}
}

// The engine never rests while it could work, and how often the caller looks changes nothing.
func TestWorkIsConserved(t *testing.T) {
	build := func() *Engine {
		e := newEngine(t, Config{MaxSeqs: 4, MaxBatchedTokens: 64})
		for i := range 9 {
			submit(t, e, 0, Request{ID: ID(i + 1), PromptTokens: 100, MaxTokens: 20, Prefix: unique(ID(i), 7)})
		}
		return e
	}
	coarse := build()
	events := coarse.Advance(time.Hour)
	fine := build()
	var got []Event
	for now := time.Duration(0); fine.InFlight() > 0; now += 3 * time.Millisecond {
		got = append(got, fine.Advance(now)...)
	}
	if !reflect.DeepEqual(events, got) {
		t.Fatal("looking more often changed what happened")
	}
	// With recomputation and caching out of the picture every token is computed once.
	if st := coarse.Stats(); st.StepTokens != 9*(100+20)-9 || st.GeneratedTokens != 180 || st.PromptTokens != 900 {
		t.Fatalf("tokens computed: %+v", st)
	}
	// The time from the first arrival to the last ending is filled with steps.
	busy := time.Duration(0)
	last := build()
	for {
		at, ok := last.Next()
		if !ok {
			break
		}
		last.Advance(at)
		if len(last.batch) > 0 {
			busy += last.stepEnd - last.now
		}
	}
	if want := last.now - millis(last.cfg.Profile.ArrivalMS); busy != want {
		t.Fatalf("steps took %v of %v", busy, want)
	}
}

func TestWaitingRequestsStartInOrderOfArrival(t *testing.T) {
	e := newEngine(t, Config{Blocks: 40, BlockTokens: 16, MaxSeqs: 3})
	// The second is large: the small ones behind it must not pass.
	sizes := []int{200, 500, 10, 10, 300, 10}
	for i, n := range sizes {
		submit(t, e, time.Duration(i)*time.Millisecond, Request{ID: ID(i + 1), PromptTokens: n, MaxTokens: 10})
	}
	want := ID(1)
	for _, ev := range drain(t, e) {
		if ev.Kind == Scheduled && !ev.Again {
			if ev.ID != want {
				t.Fatalf("request %d started when %d was first in line", ev.ID, want)
			}
			want++
		}
	}
	if want != ID(len(sizes)+1) {
		t.Fatalf("only %d of %d started", want-1, len(sizes))
	}
}

func TestTheLastRunningRequestIsPreempted(t *testing.T) {
	e := newEngine(t, Config{Blocks: 9, BlockTokens: 16, MaxSeqs: 4, MaxModelLen: 128})
	for i := range 3 {
		submit(t, e, 0, Request{ID: ID(i + 1), PromptTokens: 30, MaxTokens: 60, Prefix: unique(ID(i), 5)})
	}
	var hit []ID
	tokens := map[ID]int{}
	for _, ev := range drain(t, e) {
		switch ev.Kind {
		case Preempted:
			hit = append(hit, ev.ID)
		case Token:
			if ev.Tokens != tokens[ev.ID]+1 {
				t.Fatalf("request %d went from token %d to %d: output was lost or repeated", ev.ID, tokens[ev.ID], ev.Tokens)
			}
			tokens[ev.ID] = ev.Tokens
		case Scheduled, Finished:
		}
	}
	if len(hit) == 0 || hit[0] != 3 {
		t.Fatalf("preempted %v, want 3 first", hit)
	}
	for id, n := range tokens {
		if n != 60 {
			t.Fatalf("request %d produced %d tokens of 60", id, n)
		}
	}
	for _, id := range hit {
		if id == 1 {
			t.Fatal("the first running request was preempted")
		}
	}
}

// A prompt that can never fit blocks the head of the line for ever (a real engine's defect); its client leaving frees it.
func TestAPromptLargerThanTheCacheBlocksTheHead(t *testing.T) {
	e := newEngine(t, Config{Blocks: 5, BlockTokens: 16, MaxModelLen: 4096})
	submit(t, e, 0, Request{ID: 1, PromptTokens: 100, MaxTokens: 5})
	submit(t, e, 0, Request{ID: 2, PromptTokens: 10, MaxTokens: 5})
	if ev := e.Advance(time.Hour); len(ev) != 0 {
		t.Fatalf("something ran behind a blocked head: %v", ev)
	}
	if _, ok := e.Next(); ok {
		t.Fatal("a blocked engine says that it has work: a driver would spin")
	}
	if st := e.Stats(); st.Waiting != 2 || st.Running != 0 || st.KVUsage() != 0 {
		t.Fatalf("blocked: %+v", st)
	}
	e.Cancel(time.Hour, 1)
	ev := drain(t, e)
	if len(ev) == 0 || ev[len(ev)-1].Kind != Finished || ev[len(ev)-1].ID != 2 {
		t.Fatalf("after the head left: %v", ev)
	}
}

func TestPrefixHits(t *testing.T) {
	// As measured: a prompt of 231 tokens in blocks of 32 finds 224 of them the second time.
	e := newEngine(t, Config{Blocks: 60, BlockTokens: 32, MaxModelLen: 640})
	chain := unique(1, 7)
	var cached []int
	for i := range 2 {
		submit(t, e, e.now, Request{ID: ID(i + 1), PromptTokens: 231, MaxTokens: 4, Prefix: chain})
		for _, ev := range drain(t, e) {
			if ev.Kind == Scheduled {
				cached = append(cached, ev.Cached)
			}
		}
	}
	if !reflect.DeepEqual(cached, []int{0, 224}) {
		t.Fatalf("cached tokens %v, want 0 then 224", cached)
	}
	st := e.Stats()
	if st.PrefixQueries != 462 || st.PrefixHits != 224 || st.KVUsage() != 0 || st.Cached == 0 {
		t.Fatalf("idle with a warm cache: %+v", st)
	}
	// A prompt that is cached to its last token still computes one block.
	submit(t, e, e.now, Request{ID: 9, PromptTokens: 224, MaxTokens: 1, Prefix: chain})
	for _, ev := range drain(t, e) {
		if ev.Kind == Scheduled && ev.Cached != 192 {
			t.Fatalf("%d tokens cached, want 192: the last block must be computed", ev.Cached)
		}
	}
	e.DropPrefixCache()
	if err := e.Check(); err != nil || e.Stats().Cached != 0 {
		t.Fatalf("after dropping the cache: %v, %+v", err, e.Stats())
	}
}

func TestTheTailOfAnOldPrefixIsEvictedFirst(t *testing.T) {
	e := newEngine(t, Config{Blocks: 11, BlockTokens: 16, MaxModelLen: 160})
	old := unique(1, 5)
	submit(t, e, 0, Request{ID: 1, PromptTokens: 80, MaxTokens: 1, Prefix: old})
	drain(t, e)
	submit(t, e, e.now, Request{ID: 2, PromptTokens: 112, MaxTokens: 1, Prefix: unique(2, 7)})
	drain(t, e)
	// Five blocks were free, so two of the old ones went: the last two of the chain.
	hit, _ := e.pool.prefix(old, 5)
	if len(hit) != 3 {
		t.Fatalf("%d blocks of the old prefix are left, want the first 3", len(hit))
	}
}

func TestLimits(t *testing.T) {
	r := func(id ID, prompt int) Request { return Request{ID: id, PromptTokens: prompt, MaxTokens: 5} }
	for _, tc := range []struct {
		name string
		cfg  Config
		reqs []Request
		want error
	}{
		// Measured: a burst on --max-num-queued-reqs 3 with 8 slots lets three in.
		{"in flight", Config{MaxInFlight: 3, MaxSeqs: 8}, []Request{r(1, 9), r(2, 9), r(3, 9), r(4, 9)}, ErrQueueFull},
		{"waiting", Config{MaxWaiting: 1}, []Request{r(1, 9), r(2, 9)}, ErrQueueFull},
		{"prefill tokens", Config{MaxPrefillTokens: 100}, []Request{r(1, 99), r(2, 99), r(3, 1)}, ErrPrefillFull},
		{"duplicate", Config{}, []Request{r(1, 9), r(1, 9)}, ErrDuplicate},
		{"too long", Config{MaxModelLen: 100}, []Request{r(1, 100)}, ErrTooLong},
		{"no prompt", Config{}, []Request{r(1, 0)}, ErrInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEngine(t, tc.cfg)
			for i, q := range tc.reqs {
				err := e.Submit(0, q)
				if last := i == len(tc.reqs)-1; last != errors.Is(err, tc.want) || !last && err != nil {
					t.Fatalf("request %d: %v", i, err)
				}
			}
			if err := e.Check(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestBadConfigurationsAreNamed(t *testing.T) {
	for _, tc := range []struct {
		cfg  Config
		want string
	}{
		{Config{BlockTokens: -1}, "block size is -1 tokens: it must be between 1 and 4096"},
		{Config{Blocks: 1}, "1 KV blocks: there must be between 2 and 4194304"},
		{Config{Blocks: 10, MaxSeqs: -2}, "max running requests is -2: it must be between 1 and 65536"},
		{Config{Blocks: 10, MaxInFlight: -1}, "a queue limit is negative: use 0 for no limit"},
	} {
		if _, err := New(tc.cfg); err == nil || err.Error() != tc.want {
			t.Errorf("%+v: %v, want %s", tc.cfg, err, tc.want)
		}
	}
	if _, err := ProfileByName("nope"); err == nil {
		t.Error("an unknown profile was found")
	}
	for _, p := range Profiles() {
		if _, err := New(Config{Profile: p}); err != nil {
			t.Errorf("profile %s: %v", p.Name, err)
		}
	}
}

func BenchmarkStep(b *testing.B) {
	p, err := ProfileByName("qwen2.5-7b-h100")
	if err != nil {
		b.Fatal(err)
	}
	e := newEngine(b, Config{Profile: p, MaxSeqs: 64})
	id := ID(0)
	for b.Loop() {
		for e.InFlight() < 80 {
			id++
			submit(b, e, e.now, Request{ID: id, PromptTokens: 600, MaxTokens: 200, Prefix: unique(id%7, 50)})
		}
		at, _ := e.Next()
		e.Advance(at)
	}
	b.ReportMetric(float64(e.Stats().GeneratedTokens)/b.Elapsed().Seconds(), "tokens/s")
}

func ExampleEngine() {
	p, err := ProfileByName("cpu-smollm2-135m")
	if err != nil {
		fmt.Println(err)
		return
	}
	e, err := New(Config{Profile: p, MaxSeqs: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := e.Submit(0, Request{ID: 1, PromptTokens: 37, MaxTokens: 2}); err != nil {
		fmt.Println(err)
		return
	}
	for {
		at, ok := e.Next()
		if !ok {
			return
		}
		for _, ev := range e.Advance(at) {
			fmt.Printf("%v %v %d %q\n", ev.At.Round(time.Millisecond), ev.Kind, ev.Tokens, ev.Reason)
		}
	}
	// Output:
	// 4ms scheduled 0 ""
	// 45ms token 1 ""
	// 64ms token 2 ""
	// 65ms finished 2 "length"
}
