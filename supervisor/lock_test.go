package supervisor

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestSecondAdmitdOnAStateDirectoryIsToldWhoHasIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "state")
	release, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Lock(dir)
	var busy *StateDirBusyError
	if !errors.Is(err, ErrStateDirBusy) || !errors.As(err, &busy) || busy.PID != os.Getpid() || busy.Dir != dir {
		t.Errorf("Lock = %v; want the directory and our pid", err)
	}
	if want := "pid " + strconv.Itoa(os.Getpid()); !strings.Contains(err.Error(), want) {
		t.Errorf("error %q does not name %q", err, want)
	}
	release()
	if release, err = Lock(dir); err != nil {
		t.Fatalf("after the release: %v", err)
	}
	release()
}

func TestLockFileWithoutAPid(t *testing.T) {
	for _, content := range []string{"", "x", "-4", "999999999999999999999999"} {
		if got := lockHolder(strings.NewReader(content)); got != 0 {
			t.Errorf("holder in %q = %d; want not known", content, got)
		}
	}
}

func TestLockIsTakenOverFromTheCaller(t *testing.T) {
	o := fakeOptions(t, "serve")
	release, err := Lock(o.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	o.StateDirLocked = true
	r := run(t, o)
	r.ready()
	r.end()
	if _, err := Lock(o.StateDir); !errors.Is(err, ErrStateDirBusy) {
		t.Errorf("Lock after Run = %v; want the lock to be its caller's still", err)
	}
	release()
}
