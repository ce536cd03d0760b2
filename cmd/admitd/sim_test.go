package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"admitd/sim"
)

func TestSimListsItsFaults(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run([]string{"admitd", "sim", "--faults"}, &out, &errs); code != exitOK || errs.Len() > 0 {
		t.Fatalf("exit %d: %s", code, &errs)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != len(sim.Faults()) {
		t.Errorf("%d lines for %d faults", len(lines), len(sim.Faults()))
	}
}

func TestSimNamesWhatItCannotDo(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--fault", "sleepy"}, `unknown fault "sleepy"`},
		{[]string{"--profile", "nope"}, `unknown profile "nope": choose one of cpu-smollm2-135m`},
		{[]string{"--kv-blocks", "10", "--max-model-len", "4096"}, "max model length is 4096 tokens, the KV cache holds 144"},
	} {
		var out, errs bytes.Buffer
		code := run(append([]string{"admitd", "sim"}, tc.args...), &out, &errs)
		if code != exitUsage || !strings.Contains(errs.String(), tc.want) {
			t.Errorf("%v: exit %d, %s", tc.args, code, &errs)
		}
	}
}

// As the real engine's, the socket is replaced at the start, connectable by its owner alone, and left behind at the end.
func TestSimSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(path, []byte("left behind"), 0o600); err != nil {
		t.Fatal(err)
	}
	address, listen := simListen(path, "", false)
	l, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o755 || st.Mode()&os.ModeSocket == 0 || address != "unix:"+path {
		t.Errorf("%s: %v %v", address, st.Mode(), err)
	}
}
