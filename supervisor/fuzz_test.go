package supervisor

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"admitd/test/seeds"
)

// A row of /proc/net/tcp is a listener on a port exactly where a plain reading by columns says so.
func FuzzListening(f *testing.F) {
	f.Add("   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 31337 1 0000000000000000 100 0 0 10 0", 8080)
	f.Add("   1: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 01 00000000:00000000 00:00000000 00000000 0 0 4 1", 8080)
	f.Add("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode", 0)
	row := regexp.MustCompile(`^[\p{Z}\s]*\S+\s+[^:\s]*:([0-9A-Fa-f]+)\s+\S+\s+0A(\s+\S+){5}\s+(\S+)`)
	f.Fuzz(func(t *testing.T, text string, port int) {
		if strings.ContainsFunc(text, func(r rune) bool { return r > 0x7e || r < ' ' && r != '\t' }) {
			return
		}
		inode, ok := listening(text, port)
		m := row.FindStringSubmatch(text)
		want := ""
		if m != nil {
			if n, err := strconv.ParseUint(m[1], 16, 16); err == nil && int(n) == port {
				want = m[3]
			}
		}
		if inode != want || ok != (want != "") {
			t.Fatalf("%q, port %d: inode %q, want %q", text, port, inode, want)
		}
	})
}

// The holder of a file's lock is seen, and no other file's.
func FuzzFlocked(f *testing.F) {
	f.Add("1: FLOCK  ADVISORY  WRITE 713 08:01:100 0 EOF\n", uint64(100))
	f.Add("1: -> FLOCK  ADVISORY  WRITE 713 08:01:100 0 EOF\n2: POSIX  ADVISORY  READ 5 00:2f:1 128 128\n", uint64(1))
	f.Fuzz(func(t *testing.T, locks string, inode uint64) {
		if flocked(locks, inode) && !regexp.MustCompile(`FLOCK[^\n]*(\s|:)`+strconv.FormatUint(inode, 10)+`(\s|$)`).MatchString(locks) {
			t.Fatalf("%d is locked in %q", inode, locks)
		}
		if inode < 1<<63 && !flocked(locks+"\n9: FLOCK ADVISORY WRITE 7 08:01:"+strconv.FormatUint(inode, 10)+" 0 EOF\n", inode) {
			t.Fatalf("a lock behind %q is not seen", locks)
		}
	})
}

// parrot plays an engine that answers every request with the same text.
type parrot []byte

func (a parrot) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(bytes.NewReader(a))}, nil
}

// Whatever the engine answers to a probe: it is ready only as a model that it lists, and what people are told is short and
// printable.
func FuzzProbe(f *testing.F) {
	for _, b := range seeds.Files(f, "../sim/testdata/vllm-0.32.0/http/models.http", "../sim/testdata/vllm-0.32.0/http/version.http",
		"../sim/testdata/vllm-0.32.0/http/err-404.http", "../sim/testdata/vllm-0.32.0/http/completions-stream.http") {
		_, body, _ := bytes.Cut(b, []byte("\r\n\r\n"))
		f.Add(body, "smol")
		f.Add(body, "")
	}
	f.Add([]byte(`{"data":[{"id":"a\u0007b","max_model_len":1e300,"owned_by":"sglang"}],"version":"1\n2","choices":[{}]}`), "")
	f.Fuzz(func(t *testing.T, body []byte, name string) {
		p := prober{rt: parrot(body)}
		if name != "" {
			p.names = []string{name}
		}
		r := p.ready(context.Background())
		if !r.alive && r.err == nil {
			t.Fatalf("%q: ready, and not alive", body)
		}
		if r.err != nil {
			if text := r.err.Error(); len(text) > 4096+4*len(name) || strings.ContainsFunc(text, unicode.IsControl) {
				t.Fatalf("%q: error %q", body, text)
			}
			return
		}
		if r.model == "" || name != "" && r.model != name || name != "" && !bytes.Contains(body, []byte("id")) || r.maxModelLen < 0 {
			t.Fatalf("%q: ready as %+v", body, r)
		}
		if len(r.version) > 64 || !utf8.ValidString(r.version) || strings.ContainsFunc(r.version, unicode.IsControl) {
			t.Fatalf("%q: version %q", body, r.version)
		}
	})
}

func TestAStartThatTookLessThanNothingIsForgotten(t *testing.T) {
	dir := t.TempDir()
	text := `{"version":1,"starts":{"vllm a":{"total_ns":-5},"vllm b":{"total_ns":5,"phases_ns":{"weights":-1}},"vllm c":{"total_ns":5}}}`
	if err := os.WriteFile(filepath.Join(dir, historyFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := readHistory(dir).Starts; len(got) != 1 || got["vllm c"].Total != 5 {
		t.Errorf("%+v", got)
	}
}

// What small files of the process table and of the state folder say is believed only where it can be true.
func FuzzSmallFiles(f *testing.F) {
	f.Add([]byte("4711\n"))
	f.Add([]byte("futex_wait_queue"))
	f.Add([]byte("HF_TOKEN=hf_abcdefghijkl\x00PATH=/bin\x00" + markName + "=x\x00"))
	f.Add([]byte(`{"version":1,"starts":{"vllm m":{"total_ns":-5,"phases_ns":{"weights":-1}}}}`))
	root := f.TempDir()
	if err := os.Mkdir(filepath.Join(root, "7"), 0o700); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, name := range []string{"7/wchan", "7/environ", "7/cmdline", historyFile} {
			if err := os.WriteFile(filepath.Join(root, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if pid := lockHolder(bytes.NewReader(b)); pid < 0 || pid > 0 && !strings.Contains(string(b), strconv.Itoa(pid)) {
			t.Fatalf("%q is the pid %d", b, pid)
		}
		if at := waitsIn(root, 7); len([]rune(at)) > 64 || strings.ContainsFunc(at, unicode.IsControl) {
			t.Fatalf("%q waits in %q", b, at)
		}
		env, err := processEnv(root, 7)
		if err != nil || string(b) != strings.Join(env, "\x00") {
			t.Fatalf("%q became %q, %v", b, env, err)
		}
		for _, v := range secretValues(env) {
			if len(v) < 8 || !bytes.Contains(b, []byte("="+v)) {
				t.Fatalf("%q of %q", v, b)
			}
		}
		for key, s := range readHistory(root).Starts {
			if s.Total < 0 {
				t.Fatalf("%q: the start of %s took %v", b, key, s.Total)
			}
			for phase, d := range s.Phases {
				if d < 0 {
					t.Fatalf("%q: %s took %v", b, phase, d)
				}
			}
		}
	})
}
