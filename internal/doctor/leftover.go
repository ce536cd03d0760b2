package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"admitd/supervisor"
)

// leftovers looks for engines that run already: they hold the memory that a new one needs.
func (x *exam) leftovers() {
	busy := x.m.Serving(x.s.StateDir)
	if busy != 0 {
		x.add(Warn, "other admitd", "admitd status", "an admitd (pid %d) serves with this state folder; a second one needs another --state-dir", busy)
	}
	engines := x.engines()
	var owners map[string]owner
	if len(engines) > 0 {
		owners = x.owners()
	}
	own := x.m.EngineMark(x.s.StateDir)
	served := map[owner][]string{}
	var left, strange []string
	for _, p := range engines {
		switch o, known := owners[p.mark]; {
		case p.mark == "":
			strange = append(strange, p.text)
		case busy != 0 && p.mark == own:
		case known:
			served[o] = append(served[o], p.text)
		default:
			left = append(left, p.text)
		}
	}
	if len(left) > 0 {
		x.add(Warn, "leftover engine", "admitd serve takes over or ends the one of its own state folder; any other: kill PID", "processes of an engine whose admitd is gone: %s", strings.Join(left, ", "))
	} else {
		x.add(OK, "leftover engine", "", "none")
	}
	for _, o := range slices.SortedFunc(maps.Keys(served), func(a, b owner) int { return cmp.Compare(a.pid, b.pid) }) {
		x.add(Warn, "other engine", fmt.Sprintf("leave it to that admitd; if its memory is needed here, stop that one: kill %d", o.pid),
			"the engine of the admitd (pid %d) that serves with %s: %s", o.pid, o.dir, strings.Join(served[o], ", "))
	}
	if len(strange) > 0 {
		x.add(Warn, "other engine", "admitd serve --engine external --engine-url URL to use it; or kill its first pid", "engines that admitd has not launched: %s", strings.Join(strange, ", "))
	}
}

type engineProcess struct {
	text string
	// mark is what says from which state folder it was launched, "" for one that no admitd launched.
	mark string
}

// owner is an admitd that serves, and its state folder.
type owner struct {
	pid int
	dir string
}

// owners are the admitds that can be seen to hold a state folder, by the mark of its engines.
func (x *exam) owners() map[string]owner {
	found := map[string]owner{}
	links, _ := filepath.Glob(filepath.Join(x.m.Root, "proc", "[0-9]*", "fd", "*")) // the pattern is well-formed
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil || filepath.Base(target) != supervisor.LockName {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(link))))
		if mark := x.m.EngineMark(filepath.Dir(target)); err == nil && mark != "" {
			found[mark] = owner{pid, filepath.Dir(target)}
		}
	}
	return found
}

// mark reads admitd's mark off a process, "" when there is none.
func (x *exam) mark(at string) string {
	for entry := range strings.SplitSeq(x.read(at+"/environ"), "\x00") {
		if v, ok := strings.CutPrefix(entry, supervisor.MarkName+"="); ok {
			return v
		}
	}
	return ""
}

// group is the process group of a process: the third field behind its name, which may hold blanks and brackets (proc(5)).
func (x *exam) group(at string) string {
	stat := x.read(at + "/stat")
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(f) < 3 {
		return "none"
	}
	return f[2]
}

// engines lists the processes that are engines by their name. Those that give themselves a title overwrite what the kernel
// shows of their environment, so that their group's leader is asked for the mark as well.
func (x *exam) engines() []engineProcess {
	entries, err := os.ReadDir(filepath.Join(x.m.Root, "proc"))
	if err != nil {
		return nil
	}
	var out []engineProcess
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		at := "proc/" + e.Name()
		line := strings.ReplaceAll(x.read(at+"/cmdline"), "\x00", " ")
		// A mark alone is not enough: a shell that an engine's environment was copied to has it as well.
		is := strings.HasPrefix(line, "VLLM::") || strings.HasPrefix(line, "sglang::") || strings.Contains(line, "/vllm serve ") ||
			strings.Contains(line, "sglang.launch_server") || strings.Contains(line, "admitd sim ")
		if !is {
			continue
		}
		mark := x.mark(at)
		if mark == "" {
			mark = x.mark("proc/" + x.group(at))
		}
		out = append(out, engineProcess{text: "pid " + e.Name() + " (" + x.read(at+"/comm") + ")", mark: mark})
	}
	return out
}
