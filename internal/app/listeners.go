package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"admitd/gate/wire"
	"admitd/internal/config"
	"admitd/internal/sockets"
)

// server is what serves a listener: net/http's, or one of our own. Serve returns http.ErrServerClosed after Shutdown and
// Close, and net.ErrClosed when its listener was closed under it; connections that it has go on then.
type server interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context) error
	Close() error
}

var _, _ server = (*http.Server)(nil), (*wire.Server)(nil)

// listeners are the two sockets and what is shown on the gate's.
type listeners struct {
	gate, admin *sockets.Listener
	certs       *sockets.Certificates
	// dropped were handed down and are not listened on any more: the predecessor is, until we serve.
	dropped []*sockets.Listener
}

// listen takes the listeners that were handed down, and opens the others.
func (o Options) listen(ctx context.Context, h *heir) (ls listeners, err error) {
	c := o.Config
	if ls.certs, err = loadCertificates(c.TLS, o.Logger.With("component", "tls")); err != nil {
		return ls, err
	}
	before := func(address func(*heir) string) string {
		if h == nil {
			return ""
		}
		return address(h)
	}
	ls.gate, err = ls.listener(ctx, o, sockets.Gate, "listen", c.Listen, c.ListenMode, before(func(h *heir) string { return h.hello.Listen }))
	if err == nil {
		ls.admin, err = ls.listener(ctx, o, sockets.Admin, "admin.listen", c.Admin.Listen, c.Admin.ListenMode, before(func(h *heir) string { return h.hello.AdminListen }))
	}
	if err == nil && len(c.Keys) == 0 && !c.AllowAnonymous && !sockets.Local(sockets.Text(ls.gate.Addr())) {
		err = setup("listen: the socket that was handed down, %s, can be reached by others and no keys are configured: add keys, or say allow_anonymous: true (--allow-anonymous)", ls.gate.Addr())
	}
	if err != nil {
		ls.close()
	}
	return ls, err
}

// listener is the one that was handed down, unless it came from an admitd that listened at another address.
func (ls *listeners) listener(ctx context.Context, o Options, name, key, address, mode, before string) (*sockets.Listener, error) {
	l, err := o.Inherited.Listener(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	if l != nil && (!o.Inherited.FromAdmitd() || before == address) {
		return l, nil
	}
	if l != nil {
		ls.dropped = append(ls.dropped, l)
	}
	if l, err = sockets.Listen(ctx, address, config.Mode(mode)); err != nil {
		return nil, fmt.Errorf("%s: %w; choose another address or stop what holds it (ss -lntxp shows it)", key, err)
	}
	return l, nil
}

// served is what the gate accepts from.
func (ls listeners) served() net.Listener {
	if ls.certs != nil {
		return ls.certs.Over(ls.gate)
	}
	return ls.gate
}

// gateText is the gate's address for people: host:port, with a scheme where that is not plain HTTP.
func (ls listeners) gateText() string {
	text := sockets.Text(ls.gate.Addr())
	if ls.certs != nil && ls.gate.Addr().Network() == "tcp" {
		return "https://" + text
	}
	return text
}

// drop ends what nobody listens on once we serve, and removes the file of such a socket.
func (ls listeners) drop() error {
	var err error
	for _, l := range ls.dropped {
		err = errors.Join(err, l.Close())
	}
	return err
}

func (ls listeners) close() {
	for _, l := range ls.dropped {
		_ = l.Leave() // the predecessor's still, where it was not dropped
	}
	for _, l := range []*sockets.Listener{ls.gate, ls.admin} {
		if l != nil {
			_ = l.Close()
		}
	}
}

// lock makes the state folder and the record's folder, which may be the same, ours alone.
func (o Options) lock(stateDir string) (l locks, err error) {
	if l.state, err = hold(stateDir, o.Inherited, sockets.StateLock); err != nil {
		return locks{}, folderError("state_dir", err)
	}
	dir := journalDir(o.Config.Journal.Dir, stateDir)
	if dir == "" {
		return l, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		l.release()
		return locks{}, folderError("journal.dir", err)
	}
	if same(dir, stateDir) {
		return l, nil
	}
	if l.journal, err = hold(dir, o.Inherited, sockets.JournalLock); err != nil {
		l.release()
		return locks{}, folderError("journal.dir", err)
	}
	return l, nil
}

// folderError says what is wrong with a folder. One that this user cannot have is a mistake in the configuration; a full or
// broken disk, or another admitd in it, is not, and may be over when it is tried again.
func folderError(setting string, err error) error {
	for _, mistake := range []error{fs.ErrNotExist, fs.ErrPermission, unix.ENOTDIR, unix.EISDIR, unix.EROFS, unix.ELOOP, unix.ENAMETOOLONG, unix.EINVAL} {
		if errors.Is(err, mistake) {
			return setup("%s: %w; name a folder that this user can write", setting, err)
		}
	}
	return fmt.Errorf("%s: %w", setting, err)
}

// same reports whether two names lead to one folder.
func same(a, b string) bool {
	x, errX := os.Stat(filepath.Clean(a))
	y, errY := os.Stat(filepath.Clean(b))
	return errX == nil && errY == nil && os.SameFile(x, y)
}

func (a *instance) servers() (gateSrv, adminSrv server) {
	return a.gateServer(), &http.Server{
		Handler: a.admin.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(a.o.Logger.Handler(), slog.LevelDebug),
	}
}

// lastCall asks callers to come back on a new connection once another admitd serves: that one gets it. A connection that is
// kept for a next request is not closed under it: it would be a coin toss whether the request is on its way.
func (a *instance) lastCall(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.leaving.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// accept serves a listener until it or the server is closed.
func (a *instance) accept(s server, l net.Listener) error {
	err := s.Serve(l)
	if errors.Is(err, http.ErrServerClosed) || a.leaving.Load() && errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
