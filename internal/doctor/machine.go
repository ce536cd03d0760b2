package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// listeners looks whether the addresses can be had.
func (x *exam) listeners(ctx context.Context) {
	x.listener(ctx, "listen", x.s.Config.Listen)
	x.listener(ctx, "admin.listen", x.s.Config.Admin.Listen)
	if port := x.s.Config.Engine.Port; port != 0 && x.local {
		x.listener(ctx, "engine.port", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
}

func (x *exam) listener(ctx context.Context, key, address string) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		x.socket(key, path)
		return
	}
	err := x.m.Listen(ctx, "tcp", address)
	if err == nil {
		x.add(OK, key, "", "%s is free", address)
		return
	}
	_, port, _ := net.SplitHostPort(address) // checked with the configuration
	n, _ := strconv.Atoi(port)
	switch {
	case errors.Is(err, os.ErrPermission):
		x.add(Fail, key, "choose a port from 1024 on, or: setcap cap_net_bind_service=+ep $(command -v admitd)", "%s: this user may not listen on that port", address)
	case strings.Contains(err.Error(), "address already in use"):
		who, ours := x.m.Holder(n), x.m.Serving(x.s.StateDir)
		if ours > 0 && strings.HasPrefix(who, "pid "+strconv.Itoa(ours)+" ") {
			x.add(OK, key, "", "%s: held by the admitd that serves with this state folder (pid %d)", address, ours)
			return
		}
		if who != "" {
			x.add(Fail, key, "choose another address, or end "+who, "%s: address already in use by %s", address, who)
			return
		}
		x.add(Fail, key, "ss -ltnp 'sport = :"+port+"' as root shows who; or choose another address", "%s: address already in use, by a process that this user cannot look into", address)
	default:
		x.add(Fail, key, "choose an address of this machine: ip address", "%v", err)
	}
}

// socket looks at a unix socket's folder; serve itself tells a socket that is in use from one that was left.
func (x *exam) socket(key, path string) {
	if err := writable(filepath.Dir(path)); err != nil {
		x.add(Fail, key, "choose a folder that this user can write", "socket %s: %v", path, err)
		return
	}
	x.add(OK, key, "", "socket %s can be made", path)
}

// longestSocketFolder is how long the path of the folder for the engine's socket may be, in bytes: a socket's path has 107,
// of which the launch folder and the file take 30.
const longestSocketFolder = 77

// folders looks whether what admitd keeps can be kept, and by nobody else read.
func (x *exam) folders() {
	x.folder("state folder", x.s.StateDir, "--state-dir", true)
	if x.local {
		x.folder("data folder", x.s.DataDir, "--data-dir", false)
	}
	if dir := x.s.Config.Journal.Dir; dir != "" {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(x.s.StateDir, dir)
		}
		x.folder("journal folder", dir, "--journal-dir", true)
	}
	run := orElse(x.m.Env("TMPDIR"), "/tmp")
	switch err := writable(run); {
	case err != nil:
		x.add(Fail, "run folder", "TMPDIR=/a/folder/that/can/be/written admitd serve ...", "%v", err)
	case len(run) > longestSocketFolder:
		x.add(Fail, "run folder", "TMPDIR=/tmp admitd serve ...", "%s is too long a path for the engine's socket", run)
	default:
		x.add(OK, "run folder", "", "%s", run)
	}
}

func (x *exam) folder(name, dir, flag string, private bool) {
	if err := writable(dir); err != nil {
		x.add(Fail, name, folderFix(dir, flag, err), "%v", err)
		return
	}
	st, err := os.Stat(dir)
	switch {
	case err == nil && private && st.Mode().Perm()&0o077 != 0:
		x.add(Warn, name, "chmod 700 "+dir, "%s can be read by others (%#o)", dir, st.Mode().Perm())
		return
	case err != nil:
		x.add(OK, name, "", "%s (will be made)", dir)
		return
	}
	if free, _, err := x.m.Room(dir); err == nil && free < 100<<20 {
		x.add(Fail, name, "make room: df -h "+dir, "%s: %s are free", dir, size(free))
		return
	}
	x.add(OK, name, "", "%s", dir)
}

// folderFix says what to do about a folder that cannot be written.
func folderFix(dir, flag string, err error) string {
	another := "name another folder with " + flag
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "make room: df -h " + dir
	case errors.Is(err, syscall.EACCES):
		return fmt.Sprintf("sudo mkdir -p %s && sudo chown $(id -un) %s, or %s", dir, dir, another)
	}
	return another
}

// writable makes and removes a file in a folder, or in the nearest one above that is there. It leaves nothing.
func writable(dir string) error {
	st, err := os.Stat(dir)
	switch {
	case (errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)) && filepath.Dir(dir) != dir:
		return writable(filepath.Dir(dir))
	case err != nil:
		return err
	case !st.IsDir():
		return fmt.Errorf("%s is not a folder", dir)
	}
	f, err := os.CreateTemp(dir, ".doctor-*")
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("nothing can be made in %s: %w", dir, pe.Err) // the name that was tried is no help
	}
	if err != nil {
		return err
	}
	_ = f.Close()
	return os.Remove(f.Name())
}

// filesPerStream: a caller's connection and the engine's.
const filesPerStream = 2

// openFiles looks at the limit of open files; Go raises the soft one to it.
func (x *exam) openFiles() {
	n, err := x.m.OpenFiles()
	const fix = "ulimit -Hn 65536 as root, or LimitNOFILE=65536 in the systemd unit"
	streams := (n - min(n, 200)) / filesPerStream
	switch {
	case err != nil:
		x.add(OK, "open files", "", "the limit cannot be read: %v", err)
	case n < 512:
		x.add(Fail, "open files", fix, "at most %d files, enough for about %d streams at once", n, streams)
	case n < 8192:
		x.add(Warn, "open files", fix, "at most %d files, enough for about %d streams at once", n, streams)
	default:
		x.add(OK, "open files", "", "at most %d, enough for about %d streams at once", n, streams)
	}
}

// firstYear: no machine that runs this has a right clock before it.
const firstYear = 2026

func (x *exam) clock() {
	now := x.m.Now()
	if now.Year() < firstYear {
		x.add(Fail, "clock", "timedatectl set-ntp true", "it says %s: keys that expire and TLS need the right time", now.UTC().Format("2006-01-02 15:04"))
		return
	}
	sync, err := x.m.Synchronised()
	if err == nil && !sync {
		x.add(Warn, "clock", "timedatectl set-ntp true", "the kernel does not know it to be synchronised")
		return
	}
	x.add(OK, "clock", "", "%s", now.UTC().Format("2006-01-02 15:04 MST"))
}
