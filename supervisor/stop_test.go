package supervisor

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func TestTidyingProcessesAreSparedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Options{Kind: VLLM, Model: "m", ReapTimeout: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		left := map[string]bool{"worker": true, "tracker": true}
		var workerGone, trackerGone time.Duration
		members := func() []ident { return make([]ident, len(left)) }
		kill := func(sparing bool) {
			if left["worker"] {
				workerGone = time.Since(began)
				delete(left, "worker")
			}
			if !sparing {
				trackerGone = time.Since(began)
				delete(left, "tracker")
			}
		}
		if err := s.endProcesses(members, kill, 2*time.Second); err != nil {
			t.Fatal(err)
		}
		if workerGone < 2*time.Second || workerGone > 2100*time.Millisecond {
			t.Errorf("the worker was killed after %s; want after the 2 s in which it may leave by itself", workerGone)
		}
		if trackerGone < 7*time.Second || trackerGone > 7100*time.Millisecond {
			t.Errorf("the tidying process was killed after %s; want %s later than the worker", trackerGone, tidyTime)
		}
	})
}

func TestProcessesThatStayAreAWedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Options{Kind: VLLM, Model: "m", ReapTimeout: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		err = s.endProcesses(func() []ident { return []ident{{PID: 1 << 30}} }, func(bool) {}, 0)
		var w *wedge
		if !errors.As(err, &w) || len(w.left) != 1 {
			t.Errorf("error %v; want the process that is left", err)
		}
		if d := time.Since(began); d < 30*time.Second || d > 31*time.Second {
			t.Errorf("given up after %s; want ReapTimeout", d)
		}
	})
}

func TestTidies(t *testing.T) {
	root := t.TempDir()
	for pid, cmdline := range map[string]string{
		"1": "python\x00-B\x00-c\x00from multiprocessing.resource_tracker import main;main(32)\x00",
		"2": "VLLM::EngineCore\x00\x00", "3": "",
	} {
		if err := os.Mkdir(filepath.Join(root, pid), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, pid, "cmdline"), []byte(cmdline), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for pid, want := range map[int]bool{1: true, 2: false, 3: false, 4: false} {
		if got := tidies(root, pid); got != want {
			t.Errorf("tidies(%d) = %v; want %v", pid, got, want)
		}
	}
}
