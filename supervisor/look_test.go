package supervisor

import (
	"os"
	"testing"
)

func TestServingSeesWhoHasTheStateDirectory(t *testing.T) {
	dir := t.TempDir()
	if got := Serving(dir); got != 0 {
		t.Errorf("nobody has been here, got %d", got)
	}
	release, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := Serving(dir); got != os.Getpid() {
		t.Errorf("got pid %d, want %d", got, os.Getpid())
	}
	release()
	if got := Serving(dir); got != 0 {
		t.Errorf("it has ended, got %d", got)
	}
}
