package sim

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzAnyBody feeds bodies to every operation: the answer is always JSON with a status, and nothing is left running.
func FuzzAnyBody(f *testing.F) {
	for _, body := range []string{
		chat(3, 3, ""), `{"model":"smol","prompt":[[1,2],[3]],"n":2,"max_tokens":2,"temperature":0.5}`, `{"messages":`, `[]`, `{}`, `null`, `{"messages":7,"max_tokens":1e99}`,
		`{"input":[{"role":"user","content":[{"type":"input_text","text":"x"}]}],"max_output_tokens":2}`, `{"messages":[],"max_tokens":2.5,"n":-1}`, `{"prompt":"","max_tokens":1}`,
		`{"prompt":{"a":1},"max_tokens":1,"min_tokens":-5}`, `{"messages":[{"content":null}],"max_tokens":1,"stream_options":3}`,
	} {
		f.Add(body)
	}
	o := recorded()
	o.Speed, o.MaxModelLen, o.KVBlocks, o.BlockSize = 100000, 200, 20, 16
	s, err := New(o)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/tokenize", "/detokenize", "/v1/messages/count_tokens"} {
			req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			s.ServeHTTP(w, req)
			isStream := strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream")
			if w.Code < 200 || w.Code > 599 || !isStream && !json.Valid(w.Body.Bytes()) {
				t.Fatalf("%s: %d %q", path, w.Code, w.Body)
			}
			if w.Code == http.StatusInternalServerError {
				t.Fatalf("%s: an internal error: %s", path, w.Body)
			}
		}
		if st, err := s.Stats(); err != nil || st.Running+st.Waiting+st.Arriving+st.Used != 0 {
			t.Fatalf("left running: %+v %v", st, err)
		}
	})
}

// FuzzTokens: the pieces of a text are the text, none is empty.
func FuzzTokens(f *testing.F) {
	for _, s := range []string{"", "What is the capital of France?", "  a  b\n\tc", "你好，世界", "func main() { return 42 }", "\xff\xfe", "antidisestablishmentarianism"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var b strings.Builder
		eachToken(s, func(p string) {
			if p == "" {
				t.Fatal("an empty token")
			}
			b.WriteString(p)
		})
		if b.String() != s {
			t.Fatalf("%q became %q", s, b.String())
		}
	})
}

// Sizes are those of a real tokenizer, roughly: English near 4.5 bytes a token, Chinese a token a character.
func TestTokensAreOfPlausibleSize(t *testing.T) {
	count := func(s string) (n int) {
		eachToken(s, func(string) { n++ })
		return n
	}
	english := "The engine simulator answers with words from a short list, so that the number of tokens follows the length of the text that was sent."
	if perToken := float64(len(english)) / float64(count(english)); perToken < 3.5 || perToken > 5.5 {
		t.Errorf("English has %.2f bytes a token", perToken)
	}
	if n := count("你好世界"); n != 4 {
		t.Errorf("four characters are %d tokens", n)
	}
	if n := count("The capital of France is Paris."); n < 7 || n > 9 {
		t.Errorf("%d tokens, a real tokenizer has 7", n)
	}
}

func TestNaturalLengthsAreSpread(t *testing.T) {
	below, n := 0, 4000
	for i := range n {
		l := naturalLength(scramble(uint64(i)), 160)
		if l < 1 || l > 64*160 {
			t.Fatalf("length %d", l)
		}
		if l < 160 {
			below++
		}
	}
	if below < n*45/100 || below > n*55/100 {
		t.Errorf("%d of %d are below the median", below, n)
	}
}

func TestEveryWordIsOneToken(t *testing.T) {
	for _, w := range words {
		for _, s := range []string{w, " " + w} {
			n := 0
			eachToken(s, func(string) { n++ })
			if n != 1 {
				t.Errorf("%q is %d tokens", s, n)
			}
		}
	}
}
