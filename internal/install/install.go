package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"admitd/supervisor"
)

// Reporter is told how an install goes on. It is called from one goroutine.
type Reporter interface {
	// Step begins step number n of of.
	Step(n, of int, name string)
	// Note is a line that stays.
	Note(text string)
	// Doing is what is going on this moment; each replaces the one before.
	Doing(text string)
}

// Options say what to install, where and how.
type Options struct {
	// Kind is vllm or sglang. Build is gpu, cpu, or "" for what fits the machine. Version "" means the catalogue's.
	Kind, Build, Version string
	// DataDir is admitd's data folder. Folder, when given, is the engine's folder itself, and serve does not find it.
	DataDir, Folder string
	// Python is the interpreter to build on; "" means python3, then python, on PATH.
	Python string
	// TestModel also unpacks the small test model into the folder.
	TestModel bool
	// VerifyModel is a model to start the engine with once it is there; "" means the test model if there is one.
	VerifyModel string
	// Start tries a real start and returns one line about it.
	Start func(ctx context.Context, m Marker, model string, doing func(string)) (string, error)
	// Root is / on a real machine; tests give another one.
	Root string
	// Reporter may not be nil. Now is the clock.
	Reporter Reporter
	Now      func() time.Time
}

// record is how far an install has got, kept in its folder.
type record struct {
	Format  int    `json:"format"`
	Kind    string `json:"kind"`
	Build   string `json:"build"`
	Version string `json:"version"`
	// Begun is the step that is being done, Done those that are complete.
	Begun string   `json:"begun"`
	Done  []string `json:"done"`
	// Python is the interpreter's version.
	Python string `json:"python"`
}

// job is one install that is going on.
type job struct {
	o      Options
	engine Engine
	build  Build
	test   TestModel
	folder string
	run    *runner
	rec    record
	marker Marker
}

// Names of steps that are more than names. The check is never skipped: it also learns what the marker says.
const (
	checkStep = "check that it is whole"
	startStep = "start it once"
)

// step is one part of an install. What a step needs to know of an earlier one is on disk.
type step struct {
	name string
	// fresh says that a cut one leaves something that cannot be trusted: everything is then begun anew.
	fresh bool
	do    func(context.Context) error
}

// Resolve fills in what Options leave open and checks the rest, so that mistakes are told before anything is done. Its
// errors are mistakes in what was asked for.
func Resolve(o Options) (Options, error) {
	c, err := LoadCatalog()
	if err != nil {
		return o, err
	}
	if o.Build == "" {
		o.Build = CPU
		if _, cpu := c.Engines[o.Kind].Builds[CPU]; HasGPU(o.Root) || !cpu && c.Engines[o.Kind].Module == "" {
			o.Build = GPU
		}
	}
	e, b, err := c.build(o.Kind, o.Build)
	if err != nil {
		return o, err
	}
	if o.Version == "" {
		o.Version = b.Version
	}
	if !ValidVersion(o.Version) {
		return o, fmt.Errorf("--version %q is not a version such as %s", o.Version, b.Version)
	}
	if v := e.Supported.Judge(o.Version); !v.OK {
		return o, fmt.Errorf("%s %s", o.Kind, v.Text)
	}
	if o.Folder != "" {
		o.Folder, err = filepath.Abs(o.Folder)
	}
	return o, err
}

// Install brings an engine into its folder, or goes on with an install that was cut, and tries it. An engine that is there
// already is returned as it is; with VerifyModel it is tried again. Errors: *Error, *BusyError, or the context's.
func Install(ctx context.Context, o Options) (Marker, error) {
	o, err := Resolve(o)
	if err != nil {
		return Marker{}, err
	}
	c, err := LoadCatalog()
	if err != nil {
		return Marker{}, err
	}
	j := &job{o: o, test: c.TestModel, folder: o.Folder}
	j.engine, j.build, _ = c.build(o.Kind, o.Build) // Resolve has looked
	locked := j.folder
	if j.folder == "" {
		locked = enginesDir(o.DataDir)
		j.folder = filepath.Join(locked, folderName(o.Kind, o.Build, o.Version))
	}
	file, release, err := lock(locked)
	if err != nil {
		return Marker{}, err
	}
	defer release()
	if o.Folder == "" {
		sweep(locked)
	}
	if in := look(j.folder); in.Marker != nil && in.Problem == "" {
		return j.again(ctx, *in.Marker, file)
	}
	return j.install(ctx, file)
}

// again is for an engine that is there: the same, tried once more when a model to try it with was given.
func (j *job) again(ctx context.Context, m Marker, file *os.File) (Marker, error) {
	if m.Kind != j.o.Kind || m.Build != j.o.Build || m.Version != j.o.Version {
		return m, &Error{Step: "look at " + j.folder, Precondition: true,
			What: fmt.Sprintf("it holds %s %s (%s build), not what was asked for", m.Kind, m.Version, m.Build), Fix: "choose another folder"}
	}
	j.marker = m
	needsModel := j.o.TestModel && m.Model == ""
	if j.o.VerifyModel == "" && !needsModel {
		j.o.Reporter.Note(fmt.Sprintf("%s %s (%s build) is already in %s", m.Kind, m.Version, m.Build, m.Folder))
		return m, nil
	}
	if err := j.prepare(file); err != nil {
		return m, err
	}
	defer j.tidy()
	j.marker.Verified, j.marker.Started = nil, false
	steps := []step{{checkStep, false, j.check}, {startStep, false, j.start}}
	if needsModel {
		steps = slices.Insert(steps, 0, step{"unpack the test model", false, j.model})
	}
	if err := j.each(ctx, steps, false); err != nil {
		return m, err
	}
	return j.finish()
}

func (j *job) install(ctx context.Context, file *os.File) (Marker, error) {
	if err := j.room(); err != nil {
		return Marker{}, err
	}
	if err := j.foreign(); err != nil {
		return Marker{}, err
	}
	if err := j.prepare(file); err != nil {
		return Marker{}, err
	}
	steps := j.steps()
	j.resume(steps)
	if err := j.each(ctx, steps, true); err != nil {
		return Marker{}, err
	}
	j.marker.InstalledAt = j.o.Now()
	return j.finish()
}

// steps lists what there is to do.
func (j *job) steps() []step {
	all := []step{{"make a Python environment", true, j.environment}}
	if j.build.DropLocalPins {
		all = append(all, step{"fetch " + j.build.Package, false, j.fetch})
	}
	all = append(all, step{"install packages", true, j.packages})
	if j.build.RegisterAs != "" {
		all = append(all, step{"register the version", false, j.register})
	}
	if j.o.TestModel {
		all = append(all, step{"unpack the test model", false, j.model})
	}
	all = append(all, step{checkStep, false, j.check})
	if j.o.VerifyModel != "" || j.o.TestModel {
		all = append(all, step{startStep, false, j.start})
	}
	return all
}

// resume takes up what an earlier install has left, and says so.
func (j *job) resume(steps []step) {
	old, ok := j.readRecord()
	j.rec = record{Format: 1, Kind: j.o.Kind, Build: j.o.Build, Version: j.o.Version}
	if !ok || old.Kind != j.rec.Kind || old.Build != j.rec.Build || old.Version != j.rec.Version {
		return
	}
	cut := slices.IndexFunc(steps, func(s step) bool { return s.name == old.Begun })
	if old.Begun != "" && (cut < 0 || steps[cut].fresh) {
		j.o.Reporter.Note(fmt.Sprintf("an earlier install was cut at %q; its files cannot be trusted, so that begins anew (what pip has cached is kept)", old.Begun))
		return
	}
	j.rec.Done, j.rec.Python = old.Done, old.Python
	if len(old.Done) > 0 {
		j.o.Reporter.Note(fmt.Sprintf("going on with an earlier install, after %q", old.Done[len(old.Done)-1]))
	}
}

func (j *job) readRecord() (record, bool) {
	var r record
	b, err := os.ReadFile(filepath.Join(j.folder, recordFile))
	return r, err == nil && json.Unmarshal(b, &r) == nil && r.Format == 1
}

// each does the steps that are not done yet. Only an install keeps a record of them.
func (j *job) each(ctx context.Context, steps []step, keep bool) error {
	for i, s := range steps {
		if keep && slices.Contains(j.rec.Done, s.name) && s.name != checkStep {
			continue
		}
		j.o.Reporter.Step(i+1, len(steps), s.name)
		if keep {
			j.rec.Begun = s.name
			if err := j.writeRecord(); err != nil {
				return err
			}
		}
		if err := s.do(ctx); err != nil {
			return j.explained(ctx, s.name, err)
		}
		if keep {
			j.rec.Begun, j.rec.Done = "", append(j.rec.Done, s.name)
			if err := j.writeRecord(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (j *job) writeRecord() error {
	if err := supervisor.WriteJSON(filepath.Join(j.folder, recordFile), j.rec); err != nil {
		return &Error{Step: "remember how far the install is", What: err.Error(), Fix: "see that the disk has room and the folder can be written", Err: err}
	}
	return nil
}

// explained puts a failure into words.
func (j *job) explained(ctx context.Context, name string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if own, ok := errors.AsType[*Error](err); ok {
		if own.Step == "" {
			own.Step = name
		}
		return own
	}
	e := &Error{Step: name, What: err.Error(), Err: err, Log: filepath.Join(j.folder, logFile)}
	if failed, ok := errors.AsType[*runError](err); ok {
		if e.What, e.Fix = explain(failed.lines); e.Fix == "" {
			e.What, e.Fix = failed.Error()+"; "+e.What, "the end of the output says more; "+resumes
		}
	}
	return e
}

// prepare makes the folder and what the programs need that are started.
func (j *job) prepare(file *os.File) error {
	fail := func(err error) error {
		return &Error{Step: "prepare " + j.folder, What: err.Error(), Fix: "choose a folder that this user can write with --data-dir", Precondition: true, Err: err}
	}
	tmp := filepath.Join(j.folder, tmpDir)
	if err := os.RemoveAll(tmp); err != nil {
		return fail(err)
	}
	if err := os.MkdirAll(tmp, 0o755); err != nil { //nolint:gosec // an engine holds no secrets, and a service user must read it
		return fail(err)
	}
	log, err := os.OpenFile(filepath.Join(j.folder, logFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fail(err)
	}
	j.run = &runner{lock: file, log: log, env: environment(tmp)}
	return nil
}

// tidy removes what only the install needed.
func (j *job) tidy() {
	for _, name := range []string{tmpDir, wheelDir, cacheDir} {
		_ = os.RemoveAll(filepath.Join(j.folder, name)) // it only takes room
	}
}

// finish writes the marker: from here it is an engine.
func (j *job) finish() (Marker, error) {
	j.tidy()
	m := j.marker
	m.Bytes = diskUse(j.folder)
	m.VerifiedAt = j.o.Now()
	marker := filepath.Join(j.folder, markerFile)
	err := supervisor.WriteJSON(marker, m)
	if err == nil {
		err = os.Chmod(marker, 0o644) //nolint:gosec // the user that serves may be another than the one that installs
	}
	if err != nil {
		return m, &Error{Step: "mark the engine as installed", What: err.Error(), Fix: resumes, Err: err}
	}
	_ = os.Remove(filepath.Join(j.folder, recordFile)) // it says nothing beside the marker
	return m, nil
}

// foreign refuses a folder that holds something else: it would be deleted.
func (j *job) foreign() error {
	entries, err := os.ReadDir(j.folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &Error{Step: "look at " + j.folder, What: err.Error(), Precondition: true, Err: err}
	}
	if _, ours := j.readRecord(); ours {
		return nil
	}
	for _, e := range entries {
		switch e.Name() {
		case "pyvenv.cfg", recordFile, markerFile: // a Python environment, which may be made anew, or ours
			return nil
		}
	}
	for _, e := range entries {
		if n := e.Name(); n != lockFile && n != logFile && n != tmpDir {
			return &Error{Step: "look at " + j.folder, What: "it holds files that admitd has not put there (" + n + ")",
				Fix: "give an empty folder, or remove what is in it", Precondition: true}
		}
	}
	return nil
}

// room checks the disk before minutes are spent.
func (j *job) room() error {
	const gib = 1 << 30
	need := (j.build.DiskGiB + j.build.DownloadGiB) * gib
	if j.o.TestModel {
		need += j.test.DiskGiB * gib
	}
	need -= min(need, diskUse(j.folder)) // what an earlier try has left counts
	free, _, err := Room(j.folder)
	if err != nil || free >= need {
		return nil //nolint:nilerr // a folder that cannot be looked at is told where it is written
	}
	return &Error{Step: "look for room", Precondition: true,
		What: fmt.Sprintf("%s %s (%s build) needs %.1f GiB in %s while it is installed, and %.1f GiB are free",
			j.o.Kind, j.o.Version, j.o.Build, float64(need)/gib, j.folder, float64(free)/gib),
		Fix: "make room, or choose a folder on another disk with --data-dir"}
}
