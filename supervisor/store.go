package supervisor

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Names of the files in the state directory.
const (
	historyFile = "start-times.json"
	recordFile  = "engine.json"
	lockFile    = "engine.lock"
	drainFile   = "engine.draining"
)

// markName is the variable in an engine's environment by which its processes are known.
const markName = "ADMITD_ENGINE_MARK"

// startTimes is how long the last successful start of an engine and model took.
type startTimes struct {
	At     time.Time                `json:"at"`
	Total  time.Duration            `json:"total_ns"`
	Phases map[string]time.Duration `json:"phases_ns"`
}

// history is the content of the start times file, by historyKey.
type history struct {
	Version int                   `json:"version"`
	Starts  map[string]startTimes `json:"starts"`
}

func historyKey(k Kind, model string) string { return string(k) + " " + model }

// readHistory reads the start times. A file that is absent or broken is an empty history: it costs a forecast, not a start.
func readHistory(dir string) history {
	h := history{Version: 1, Starts: map[string]startTimes{}}
	if dir == "" {
		return h
	}
	b, err := os.ReadFile(filepath.Join(dir, historyFile))
	if err != nil {
		return h
	}
	var read history
	if json.Unmarshal(b, &read) == nil && read.Version == 1 && read.Starts != nil {
		maps.DeleteFunc(read.Starts, func(_ string, s startTimes) bool { return !s.possible() })
		return read
	}
	return h
}

// possible reports whether it can have taken so long.
func (s startTimes) possible() bool {
	for _, d := range s.Phases {
		if d < 0 {
			return false
		}
	}
	return s.Total >= 0
}

func (h history) write(dir string) error {
	if dir == "" {
		return nil
	}
	return writeJSON(filepath.Join(dir, historyFile), h)
}

// recordVersion is the form of the record that this admitd writes and believes.
const recordVersion = 2

// record is what a later admitd needs to find the engine that this one left behind, and to go on with it. It holds the engine's
// key, and is for our eyes only (mode 0600).
type record struct {
	Version int    `json:"version"`
	BootID  string `json:"boot_id"`
	// Owner is the supervisor that the engine belongs to: no other may launch, signal or record.
	Owner owner  `json:"owner"`
	Kind  Kind   `json:"kind"`
	Model string `json:"model"`
	// Leader and Members are the processes; all zero in a record that was written before there was one.
	Leader  ident   `json:"leader"`
	Members []ident `json:"members"`
	Mark    string  `json:"mark"`
	// Args is the hash of the command that launched it (hashArgs).
	Args    string `json:"argv_sha256"`
	Address string `json:"address"`
	Key     string `json:"key"`
	// Dir is the launch's own folder, Log the file that the engine prints into.
	Dir string `json:"dir"`
	Log string `json:"log"`
	// At is when it was launched.
	At time.Time `json:"at"`
	// Ready says that it has been ready; Stopping, that it was asked to end, or is about to be.
	Ready    bool `json:"ready"`
	Stopping bool `json:"stopping"`
	// Phases are those of its start so far; the others what its output has said by then, zero or empty when nothing.
	Phases   []PhaseTime `json:"phases"`
	Capacity int         `json:"kv_capacity_tokens"`
	Slots    int         `json:"slots"`
	Engine   string      `json:"engine_version"`
}

// owner names one supervisor: the process, and which one in it.
type owner struct {
	Process ident  `json:"process"`
	ID      string `json:"id"`
}

// lives reports whether the owner's process still runs.
func (o owner) lives() bool {
	p, ok := readProc("/proc", o.Process.PID)
	return ok && p.ident == o.Process && !p.zombie()
}

// hashArgs names a command line with what is set in its environment on purpose.
func hashArgs(args []string) string {
	sum := sha256.Sum256([]byte(strings.Join(args, "\x00")))
	return hex.EncodeToString(sum[:])
}

// readRecord returns the record of an earlier engine; ok is false when there is none that can be trusted: of this boot,
// readable and complete. One that was written before its launch has a mark and no process yet.
func readRecord(dir, boot string) (record, bool) {
	b, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err != nil {
		return record{}, false
	}
	var r record
	if json.Unmarshal(b, &r) != nil || r.Version != recordVersion || !r.findable() || r.BootID == "" || r.BootID != boot {
		return record{}, false
	}
	return r, true
}

// findable reports whether the record says how to know the engine's processes.
func (r record) findable() bool { return r.Leader.PID > 1 || r.Leader == ident{} && r.Mark != "" }

func (r record) write(dir string) error { return writeJSON(filepath.Join(dir, recordFile), r) }

// removeFiles removes the record and the output of an engine that has ended.
func removeFiles(dir string) error {
	for _, name := range []string{recordFile, logFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove what is kept of the engine: %w", err)
		}
	}
	return nil
}

// writeJSON replaces a file as a whole: a reader sees the old content or the new, never a part.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(path), err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(append(b, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the half-written file is of no use to anybody
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// folderMark is the entry in the environment of every engine that was launched from a state directory. It is made of what the
// directory is, not kept in it: so neither a full disk nor a lost record hides an engine, and two machines or containers that
// see each other's processes have different marks for directories of the same name. "" for a directory that is not there.
func folderMark(dir string) string {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return ""
	}
	var st unix.Stat_t
	if unix.Stat(abs, &st) != nil {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d", abs, st.Dev, st.Ino))
	return markName + "=" + hex.EncodeToString(sum[:16])
}
