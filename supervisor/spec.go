package supervisor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// maxSocketPath is the longest path of a unix socket on Linux: 108 bytes with the closing zero (unix(7)).
const maxSocketPath = 107

// maxTempDir is the longest TMPDIR under which the sockets that engines make there still fit into maxSocketPath: they
// append up to 40 bytes.
const maxTempDir = 64

// spec is one launch, ready to be run.
type spec struct {
	path string
	args []string
	env  []string
	// shown is the command with secrets blanked; secrets are what must not appear in any line.
	shown, secrets []string
	target         target
	address        string
	// dir is the launch's own folder, removed when its processes are gone.
	dir  string
	mark string
	// log is the file that the engine prints into.
	log string
	at  place
	// names are the served names, slots the limit on running requests in the arguments, 0 when they name none.
	names []string
	slots int
}

// LaunchError is a launch that failed before there was a process.
type LaunchError struct {
	// Hint says what a person can do; Permanent that trying again cannot help.
	Hint      string
	Permanent bool
	// Err is the cause.
	Err error
}

// Error implements error.
func (e *LaunchError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *LaunchError) Unwrap() error { return e.Err }

// tooLong is by how many bytes the path of a run directory exceeds what the engine's sockets leave room for; 0 or less is fine.
func tooLong(runDir string) int {
	return len(filepath.Join(runDir, "admitd-0123456789", "tmp")) - maxTempDir
}

// launchDir makes a fresh folder that only we can enter, with a folder for temporary files in it.
func launchDir(runDir string) (dir string, err error) {
	if runDir == "" {
		if runDir = os.TempDir(); tooLong(runDir) > 0 {
			runDir = "/tmp"
		}
	} else if err := os.MkdirAll(runDir, 0o700); err != nil {
		return "", fmt.Errorf("make the run directory: %w", err)
	}
	if n := tooLong(runDir); n > 0 {
		return "", fmt.Errorf("run directory %s: its path is %d bytes too long for the engine's sockets (a socket path may have %d bytes); choose a shorter one, such as /run/admitd",
			runDir, n, maxSocketPath)
	}
	// MkdirTemp makes the folder with mode 0700 and fails rather than use one that is there.
	dir, err = os.MkdirTemp(runDir, "admitd-")
	if err != nil {
		return "", fmt.Errorf("make the launch folder: %w", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "tmp"), 0o700); err != nil {
		return "", errors.Join(fmt.Errorf("make the launch folder: %w", err), os.RemoveAll(dir))
	}
	return dir, nil
}

// place is what differs between two launches of the same engine: chosen for a new one, known of one that runs.
type place struct {
	// n is the launch's number in this supervisor.
	n        int
	dir, key string
	// taken says that the engine has its port already; port is then the one that was chosen for it, 0 for none.
	taken bool
	port  int
}

// buildSpec decides everything about a launch; n is its number, key the engine's random key.
func (o Options) buildSpec(n int, key string) (*spec, error) {
	dir, err := launchDir(o.RunDir)
	if err != nil {
		return nil, &LaunchError{Err: err, Permanent: true}
	}
	s, err := o.specAt(place{n: n, dir: dir, key: key})
	if err != nil {
		_ = os.RemoveAll(dir) // empty but for itself; the error to report is the launch's
		return nil, err
	}
	return s, nil
}

// specAt is the launch that these options lead to at a place.
func (o Options) specAt(at place) (s *spec, err error) {
	s = &spec{dir: at.dir, names: o.ServedNames, mark: o.mark(at.dir), log: o.logPath(at.dir), at: at}
	s.target = target{scheme: "http", host: "engine-" + strconv.Itoa(at.n), key: at.key}
	switch o.Kind {
	case VLLM:
		err = o.vllm(s)
	case SGLang:
		err = o.sglang(s)
	case Sim:
		err = o.sim(s)
	}
	if err != nil {
		return nil, err
	}
	o.finish(s)
	return s, nil
}

// hash names what was launched: the program, its arguments, and what the configuration puts into its environment. The path of
// the simulator is our own, which an upgrade may change.
func (o Options) hash(s *spec) string {
	path := s.path
	if o.Kind == Sim && o.Binary == "" {
		path = string(Sim)
	}
	return hashArgs(append(append([]string{path}, s.args...), o.Env...))
}

// mark is the entry in the engine's environment by which its processes are known: one for all launches from a state directory,
// so that a later admitd knows them without having read anything.
func (o Options) mark(launchDir string) string {
	if o.StateDir != "" {
		if m := folderMark(o.StateDir); m != "" {
			return m
		}
	}
	return markName + "=" + filepath.Base(launchDir) + "-" + strconv.Itoa(os.Getpid())
}

// finish fills what is the same for every engine.
func (o Options) finish(s *spec) {
	add := []string{"TMPDIR=" + filepath.Join(s.dir, "tmp"), "PYTHONUNBUFFERED=1", s.mark}
	if lookEnv(os.Environ(), "TORCHINDUCTOR_CACHE_DIR") == "" {
		// The cache would be in TMPDIR and every start a cold one.
		add = append(add, "TORCHINDUCTOR_CACHE_DIR="+filepath.Join(os.TempDir(), "torchinductor_"+strconv.Itoa(os.Getuid())))
	}
	s.env = environ(os.Environ(), append(append(add, s.env...), o.Env...)...)
	shown, secrets := hide(s.args)
	s.shown = append([]string{s.path}, shown...)
	s.secrets = append(secrets, s.target.key)
	s.secrets = append(s.secrets, secretValues(s.env)...)
	if names, ok := flagValues(o.Args, "--served-model-name"); ok && len(names) > 0 {
		s.names = names
	}
}

// engineDrain is how long the engine's own drain may take after SIGTERM: no longer than ours, which was for the same requests.
func (o Options) engineDrain() time.Duration {
	return min(max(o.StopGrace-10*time.Second, 0), o.DrainTimeout)
}

// seconds writes a duration as whole seconds, rounded up.
func seconds(d time.Duration) string { return strconv.Itoa(int((d + time.Second - 1) / time.Second)) }

// vllm fills the launch of `vllm serve`. The key goes through the environment, where ps does not show it.
func (o Options) vllm(s *spec) (err error) {
	if s.path, err = o.find("vllm", "install vLLM (pip install vllm) or give its command with --engine-binary"); err != nil {
		return err
	}
	ours := [][]string{
		append([]string{"--served-model-name"}, o.ServedNames...),
		{"--enable-prompt-tokens-details"},
		{"--shutdown-timeout", seconds(o.engineDrain())},
		{"--disable-uvicorn-access-log"},
	}
	switch {
	case sets(o.Args, "--uds"):
		if err := s.unix(flagValue(o.Args, "--uds")); err != nil {
			return err
		}
	case sets(o.Args, "--port") || sets(o.Args, "--host"):
		port := 8000
		if v := flagValue(o.Args, "--port"); v != "" {
			port = number(v)
		}
		if err := s.tcp(flagValue(o.Args, "--host"), port); err != nil {
			return err
		}
	case o.EnginePort != 0:
		if err := s.tcp("127.0.0.1", o.EnginePort); err != nil {
			return err
		}
		ours = append(ours, []string{"--host", "127.0.0.1"}, []string{"--port", strconv.Itoa(o.EnginePort)})
	default:
		if err := s.unix(filepath.Join(s.dir, "engine.sock")); err != nil {
			return err
		}
		ours = append(ours, []string{"--uds", s.target.address})
	}
	s.env = append(s.env, "VLLM_API_KEY="+s.target.key)
	if key := flagValue(o.Args, "--api-key"); key != "" {
		s.target.key = key
	}
	s.slots = number(flagValue(o.Args, "--max-num-seqs"))
	s.args = append([]string{"serve", o.Model}, merge(ours, o.Args)...)
	return nil
}

// sglang fills the launch of SGLang's server. It has no way to take the key but its arguments, which other users of the
// machine may see; the port is on loopback.
func (o Options) sglang(s *spec) (err error) {
	if s.path, err = o.find("python3", "install SGLang (pip install sglang) or give the Python that has it with --engine-binary"); err != nil {
		return err
	}
	want := o.EnginePort
	if v := flagValue(o.Args, "--port"); v != "" {
		want = number(v)
	}
	port := want
	switch {
	case !s.at.taken:
		if port, err = freePort(want); err != nil {
			return &LaunchError{Err: err}
		}
	case want == 0:
		port = s.at.port
	}
	if err := s.tcp(flagValue(o.Args, "--host"), port); err != nil {
		return err
	}
	if key := flagValue(o.Args, "--api-key"); key != "" {
		s.target.key = key
	}
	ours := [][]string{
		{"--model-path", o.Model}, {"--host", "127.0.0.1"}, {"--port", strconv.Itoa(port)},
		{"--served-model-name", o.ServedNames[0]}, {"--api-key", s.target.key},
		{"--enable-metrics"}, {"--enable-cache-report"}, {"--decode-log-interval", "5"},
	}
	s.names = o.ServedNames[:1]
	s.slots = number(flagValue(o.Args, "--max-running-requests"))
	start := []string{"-m", "sglang.launch_server"}
	if filepath.Base(s.path) == "sglang" {
		start = []string{"serve"}
	}
	s.args = append(start, merge(ours, o.Args)...)
	return nil
}

// sim fills the launch of admitd's own simulator.
func (o Options) sim(s *spec) error {
	path, err := o.self()
	if err != nil {
		return &LaunchError{Err: err, Permanent: true}
	}
	if o.Binary != "" {
		path = o.Binary
	}
	s.path = path
	names := []string{"--served-model-name"}
	for i, n := range o.ServedNames {
		if i > 0 {
			names = append(names, "--served-model-name")
		}
		names = append(names, n)
	}
	ours := [][]string{
		{"--model", o.Model}, names, {"--enable-prompt-tokens-details"}, {"--disable-uvicorn-access-log"},
		{"--shutdown-timeout", seconds(o.engineDrain())},
	}
	switch {
	case sets(o.Args, "--uds"):
		if err := s.unix(flagValue(o.Args, "--uds")); err != nil {
			return err
		}
	case sets(o.Args, "--listen"):
		host, port, err := net.SplitHostPort(flagValue(o.Args, "--listen"))
		if err != nil {
			return &LaunchError{Err: fmt.Errorf("--listen: %w", err), Permanent: true}
		}
		if err := s.tcp(host, number(port)); err != nil {
			return err
		}
	default:
		if err := s.unix(filepath.Join(s.dir, "engine.sock")); err != nil {
			return err
		}
		ours = append(ours, []string{"--uds", s.target.address})
	}
	s.env = append(s.env, "VLLM_API_KEY="+s.target.key)
	if key := flagValue(o.Args, "--api-key"); key != "" {
		s.target.key = key
	}
	s.slots = number(flagValue(o.Args, "--max-num-seqs"))
	s.args = append([]string{"sim"}, merge(ours, o.Args)...)
	return nil
}

// unix points to a socket.
func (s *spec) unix(path string) error {
	if path == "" || len(path) > maxSocketPath {
		return &LaunchError{Err: fmt.Errorf("socket path %q: must have 1 to %d bytes", path, maxSocketPath), Permanent: true}
	}
	s.target.network, s.target.address = "unix", path
	s.address = "unix:" + path
	return nil
}

// tcp points to a port, which must be free. A wildcard or empty host is reached over loopback.
func (s *spec) tcp(host string, port int) error {
	if port <= 0 || port > 65535 {
		return &LaunchError{Err: fmt.Errorf("engine port %d: must be 1 to 65535", port), Permanent: true}
	}
	if !s.at.taken {
		if _, err := freePort(port); err != nil {
			return &LaunchError{Err: err, Hint: "end the process that holds the port, or choose another one"}
		}
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	s.target.network, s.target.address = "tcp", net.JoinHostPort(host, strconv.Itoa(port))
	s.address = "http://" + s.target.address
	return nil
}

// find looks the engine's command up.
func (o Options) find(name, hint string) (string, error) {
	if o.Binary != "" {
		name = o.Binary
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", &LaunchError{Err: fmt.Errorf("find the engine's command: %w", err), Hint: hint, Permanent: true}
	}
	return path, nil
}
