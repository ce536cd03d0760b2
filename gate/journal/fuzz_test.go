package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Whatever is on the disk, and wherever a file is entered: what is read back is the end of what the whole record holds, and
// no more than was asked for.
func FuzzReadTail(f *testing.F) {
	whole := line(f, decided("a")) + line(f, ended("a"))
	f.Add([]byte(whole), []byte(whole), 3, int64(len(whole)+10))
	f.Add([]byte(whole+whole[:40]), []byte("\n\n{}\n"+whole), 100, int64(1<<20))
	f.Add([]byte("no end"), []byte(whole), 1, int64(20))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, older, newer []byte, most int, bytes int64) {
		for i, b := range [][]byte{older, newer} {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s%d%s", filePrefix, i+1, fileSuffix)), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		most = max(most, 1)
		var all []Entry
		notices, err := ReadDir(dir, func(e Entry) error { all = append(all, e); return nil })
		if err != nil {
			t.Fatal(err)
		}
		tail, said, err := readTail(dir, most, bytes)
		if err != nil {
			t.Fatal(err)
		}
		if len(tail) > most || len(tail) > len(all) || len(said) > len(notices) {
			t.Fatalf("%d entries and %d notices; asked for %d, there are %d and %d", len(tail), len(said), most, len(all), len(notices))
		}
		if d := cmp.Diff(all[len(all)-len(tail):], tail, cmpopts.EquateEmpty()); d != "" {
			t.Fatal(d)
		}
		if bytes > int64(len(older)+len(newer)) && len(tail) != min(most, len(all)) {
			t.Fatalf("%d entries of %d, though there was room for %d", len(tail), len(all), most)
		}
	})
}
