package gate

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// cutUp splits s at random places.
func cutUp(rng *rand.Rand, s string) (pieces []string) {
	for s != "" {
		n := 1 + rng.IntN(min(len(s), 1+rng.IntN(400)))
		pieces = append(pieces, s[:n])
		s = s[n:]
	}
	return pieces
}

// randomJSON is white space, escapes and members that nobody knows, around what a chat needs.
func randomJSON(rng *rand.Rand, stream bool) string {
	odd := []string{" ", "\n", "\t", "", "  "}
	sp := func() string { return odd[rng.IntN(len(odd))] }
	var b strings.Builder
	fmt.Fprintf(&b, `{%s"x_%d"%s:%s[1,2.50,{"a":null}],%s"messages":[{"role":"user","content":"h\u0065llo \ud83d\ude00 %d é"}]%s,`,
		sp(), rng.IntN(99), sp(), sp(), sp(), rng.Int(), sp())
	if stream {
		fmt.Fprintf(&b, `"stream"%s:true,"stream_options":{"include_usage":true},`, sp())
	}
	fmt.Fprintf(&b, `"model":%s"m"%s,"temperature":1e-3%s}%s`, sp(), sp(), sp(), sp())
	return b.String()
}

func randomStream(rng *rand.Rand) string {
	ends := []string{"\n", "\r\n"}
	end := ends[rng.IntN(2)]
	var b strings.Builder
	for range 1 + rng.IntN(20) {
		switch rng.IntN(4) {
		case 0:
			b.WriteString(": comment" + end + end)
		case 1:
			b.WriteString(`data: {"odd":` + strconv.Itoa(rng.IntN(9)) + `}` + end + end)
		default:
			b.WriteString(strings.ReplaceAll(tokenEvent(strings.Repeat("é", rng.IntN(50))), "\n", end))
		}
	}
	return b.String() + strings.ReplaceAll(endEvents(), "\n", end)
}

// What the caller sent reaches the engine byte by byte, and back, however it is cut up.
func TestBytesPassUnchangedBothWays(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 11))
	var sent, answer string
	var pieces []string
	var isStream bool
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		if string(b) != sent {
			t.Errorf("engine got %q, caller sent %q", b, sent)
		}
		if isStream {
			sse(w, pieces...)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Engine-Odd", "kept")
		w.WriteHeader([]int{200, 400, 422, 500}[len(answer)%4])
		for _, p := range pieces {
			_, _ = io.WriteString(w, p)
			_ = http.NewResponseController(w).Flush()
		}
	}, nil)
	for i := range 120 {
		isStream = i%2 == 0
		sent = randomJSON(rng, isStream)
		if isStream {
			answer = randomStream(rng)
		} else {
			answer = fmt.Sprintf(`{"n":%d,"pad":"%s"}`, i, strings.Repeat("z", rng.IntN(5000)))
		}
		pieces = cutUp(rng, answer)
		resp, got := r.get("POST", chatPath, sent)
		if got != answer {
			t.Fatalf("round %d: caller got %q, engine sent %q", i, got, answer)
		}
		if !isStream && (resp.StatusCode != []int{200, 400, 422, 500}[len(answer)%4] || resp.Header.Get("X-Engine-Odd") != "kept") {
			t.Fatalf("round %d: status %d, headers %v", i, resp.StatusCode, resp.Header)
		}
	}
	r.outcome(120)
	r.idle()
}

func TestOpenStreamsSurvivePolicySwapsByteIdentical(t *testing.T) {
	const streams, swaps = 50, 20
	step := make([]chan struct{}, streams)
	for i := range step {
		step[i] = make(chan struct{})
	}
	piece := func(id string, k int) string { return tokenEvent(fmt.Sprintf("%s-%d", id, k)) }
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		var n int
		_, _ = fmt.Sscanf(q.Header.Get("X-Stream"), "%d", &n)
		sse(w, piece(q.Header.Get("X-Stream"), 0))
		k := 1
		for range step[n] {
			sse(w, piece(q.Header.Get("X-Stream"), k))
			k++
		}
		sse(w, endEvents())
	}, nil)
	sums := make([][32]byte, streams)
	var wg, begun sync.WaitGroup
	begun.Add(streams)
	for i := range streams {
		resp := r.do("POST", chatPath, streamBody, "X-Stream", strconv.Itoa(i))
		wg.Go(func() {
			head := readUntil(t, resp.Body, "\n\n")
			begun.Done()
			rest, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Errorf("stream %d: %v", i, err)
			}
			sums[i] = sha256.Sum256([]byte(head + string(rest)))
		})
	}
	begun.Wait()
	for k := range swaps {
		// Every other policy would let nobody in: those in flight must not notice.
		text := admitAll
		if k%2 == 0 {
			text = fmt.Sprintf("policy: concurrency\nparams:\n  max_in_flight: %d\n", 1+k)
		}
		r.pool.Admission.SetPolicy(compile(t, text))
		for i := range streams {
			step[i] <- struct{}{}
		}
	}
	for i := range streams {
		close(step[i])
	}
	wg.Wait()
	for i := range streams {
		var want strings.Builder
		for k := range swaps + 1 {
			want.WriteString(piece(strconv.Itoa(i), k))
		}
		if sums[i] != sha256.Sum256([]byte(want.String()+endEvents())) {
			t.Errorf("stream %d changed on the way", i)
		}
	}
	r.outcome(streams)
	r.idle()
}

func TestRawPathQueryAndHeadersOnTheWay(t *testing.T) {
	got := make(chan *http.Request, 1)
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		got <- q
		w.Header().Set("X-Admitd-Decision", "forged")
		w.Header().Set("Keep-Alive", "timeout=5")
		answerJSON(w, q)
	}, func(s *setup) {
		s.Keys = oneKey(t, nil)
		s.NewID = func() string { return "req-1" }
	})
	resp, _ := r.get("POST", chatPath+"?a=%2F%20b&c;d", chatBody, "Authorization", "Bearer "+goodSecret,
		"X-Admitd-Session", "s1", "X-Request-Id", "mine", "Connection", "X-Hop", "X-Hop", "1", "Accept-Encoding", "gzip, br",
		"X-Custom", "kept", "Idempotency-Key", "i1", "TE", "trailers")
	q := recv(t, "request", got)
	if q.RequestURI != chatPath+"?a=%2F%20b&c;d" {
		t.Errorf("request URI %q", q.RequestURI)
	}
	for name, want := range map[string]string{"Authorization": "", "X-Admitd-Session": "", "X-Request-Id": "req-1", "X-Hop": "",
		"Accept-Encoding": "identity", "X-Custom": "kept", "Idempotency-Key": "", "Te": "", "Content-Type": "application/json"} {
		if v := q.Header.Get(name); v != want {
			t.Errorf("engine got %s %q, want %q", name, v, want)
		}
	}
	if resp.Header.Get("X-Admitd-Decision") != "admit" || resp.Header.Get("X-Admitd-Request-Id") != "req-1" || resp.Header.Get("Keep-Alive") != "" {
		t.Errorf("caller got %v", resp.Header)
	}
}
