package supervisor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestHistorySurvivesAndForgivesBrokenFiles(t *testing.T) {
	dir := t.TempDir()
	h := readHistory(dir)
	h.Starts[historyKey(VLLM, "m")] = startTimes{Total: 40 * time.Second, Phases: map[string]time.Duration{"weights": 3 * time.Second}}
	if err := h.write(dir); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(h, readHistory(dir)); d != "" {
		t.Errorf("history read back differs (-want +got):\n%s", d)
	}
	for _, bad := range []string{"", "{", "null", `{"version":2,"starts":{}}`, `{"version":1}`} {
		if err := os.WriteFile(filepath.Join(dir, historyFile), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := readHistory(dir); got.Starts == nil || len(got.Starts) != 0 {
			t.Errorf("history of %q = %+v; want an empty one that can be written to", bad, got)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("files %v, %v; want no half-written ones", left, err)
	}
}

func TestRecordIsBelievedOnlyWhenWhole(t *testing.T) {
	dir := t.TempDir()
	good := record{Version: recordVersion, BootID: "b", Leader: ident{PID: 77, Start: 5}}
	if err := good.write(dir); err != nil {
		t.Fatal(err)
	}
	if _, ok := readRecord(dir, "b"); !ok {
		t.Error("a good record was not believed")
	}
	if err := (record{Version: recordVersion, BootID: "b", Mark: "X=y"}).write(dir); err != nil {
		t.Fatal(err)
	}
	if _, ok := readRecord(dir, "b"); !ok {
		t.Error("a record that was written before its launch was not believed")
	}
	if err := good.write(dir); err != nil {
		t.Fatal(err)
	}
	if _, ok := readRecord(dir, "another boot"); ok {
		t.Error("a record of another boot was believed")
	}
	for _, bad := range []record{
		{Version: recordVersion + 1, BootID: "b", Leader: good.Leader}, {Version: recordVersion, BootID: "b"},
		{Version: recordVersion, Leader: good.Leader}, {Version: recordVersion, BootID: "b", Leader: ident{PID: 1}},
	} {
		if err := bad.write(dir); err != nil {
			t.Fatal(err)
		}
		if _, ok := readRecord(dir, bad.BootID); ok {
			t.Errorf("the record %+v was believed", bad)
		}
	}
	for range 2 {
		if err := removeFiles(dir); err != nil {
			t.Errorf("removeFiles = %v", err)
		}
	}
}

// A record that is believed is of this boot, says whom to look for, and is the same when it is written again.
func FuzzReadRecord(f *testing.F) {
	f.Add([]byte(`{"version":2,"boot_id":"b","leader":{"pid":77,"start_ticks":5}}`))
	f.Add([]byte(`{"version":2,"boot_id":"b","mark":"m","members":[{"pid":-1}],"phases":[{"name":"weights"}],"at":"2026-11-30T12:00:00Z"}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, recordFile), b, 0o600); err != nil {
			t.Fatal(err)
		}
		r, ok := readRecord(dir, "b")
		if !ok {
			return
		}
		if r.Leader.PID <= 1 && (r.Leader != ident{} || r.Mark == "") || r.BootID != "b" {
			t.Fatalf("record %+v was believed", r)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var again record
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(r, again); d != "" {
			t.Fatal(d)
		}
	})
}
