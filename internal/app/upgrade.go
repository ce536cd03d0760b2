package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"admitd/gate/admission"
	"admitd/internal/handover"
	"admitd/internal/sockets"
	"admitd/supervisor"
	"admitd/ui"
)

// succession is what the admitd that serves knows of an upgrade: see package handover for the order of things.
type succession struct {
	mu sync.Mutex
	// life ends when admitd begins to stop, by endLife; nil before it runs.
	life    context.Context
	endLife context.CancelFunc
	// running is true while an upgrade is tried, done once a successor serves.
	running, done bool
	// ending is set when no further upgrade may begin; idle is told when one has ended then.
	ending bool
	idle   chan struct{}
	// handed is closed when done becomes true.
	handed chan struct{}
	// forward takes what becomes of our requests to the successor.
	forward *handover.Forwarder
	link    *handover.Link
}

// successor is the process that is to take over.
type successor struct {
	process *os.Process
	link    *handover.Link
	// exited is closed when it has ended and been reaped; end says how then.
	exited chan struct{}
	end    *os.ProcessState
}

func (s *successor) pid() int { return s.process.Pid }

// abort ends a successor that does not serve yet. It has no engine of its own to leave behind: it has at most adopted ours.
func (s *successor) abort() {
	s.link.Close()
	_ = s.process.Kill()
	<-s.exited
}

// Upgrade implements ui.Backend: it starts a new admitd on our listeners, "" for the binary that we were started from, and
// returns when that one serves, or when it is sure that we go on. tell hears of each step.
func (a *instance) Upgrade(binary string, tell func(string)) (pid int, err error) {
	path, err := a.successorBinary(binary)
	if err != nil {
		return 0, err
	}
	life, err := a.succession.begin()
	if err != nil {
		return 0, err
	}
	a.o.Logger.Info("upgrade begun", "binary", path)
	ctx, cancel := context.WithTimeout(life, a.o.Config.Upgrade.Timeout)
	defer cancel()
	pid, err = a.succeed(ctx, path, tell)
	if err == nil {
		a.pool.store.event("upgrade", "info", fmt.Sprintf("the admitd of pid %d has taken over from that of pid %d", pid, os.Getpid()))
		a.giveWay(pid)
	}
	a.succession.end(err == nil)
	switch {
	case errors.Is(err, errStopping):
		a.pool.store.event("upgrade_failed", "warn", "upgrade called off: "+err.Error())
	case err != nil:
		err = fmt.Errorf("the running admitd goes on: %w", err)
		a.pool.store.event("upgrade_failed", "error", "upgrade failed, "+err.Error())
	}
	if err != nil {
		return 0, err
	}
	return pid, nil
}

// prepare says how long upgrades may be tried.
func (s *succession) prepare(life context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life, s.endLife = context.WithCancel(life)
	s.handed, s.idle = make(chan struct{}), make(chan struct{}, 1)
}

// over reports whether a successor serves.
func (s *succession) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}

// settle calls off an upgrade that is being tried, and refuses those to come.
func (s *succession) settle() {
	s.endLife()
	s.mu.Lock()
	running := s.running
	s.ending = true
	s.mu.Unlock()
	if running {
		<-s.idle
	}
}

func (s *succession) begin() (context.Context, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.life == nil || s.ending:
		return nil, fmt.Errorf("%w: admitd is stopping", ui.ErrNoUpgrade)
	case s.done:
		return nil, fmt.Errorf("%w: another admitd has taken over already", ui.ErrNoUpgrade)
	case s.running:
		return nil, fmt.Errorf("%w: one is under way", ui.ErrNoUpgrade)
	}
	s.running = true
	return s.life, nil
}

// giveWay stops accepting: the successor has the same sockets, and what waits in their queues is served there. The folders'
// locks go too.
func (a *instance) giveWay(pid int) {
	a.leaving.Store(true)
	_ = a.gateL.Leave()
	_ = a.adminL.Leave()
	a.tell(sockets.MainPID(pid))
	// From here on the folders are the successor's alone: when it ends, another one can begin while we still finish.
	done, err := supervisor.Drain(a.stateDir)
	if err != nil {
		a.o.Logger.Warn("a later admitd may take requests for lost that are still being finished", "error", err)
	}
	a.drained = done
	a.locks.release()
}

func (s *succession) end(done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = false
	if s.ending {
		s.idle <- struct{}{}
	}
	if done {
		s.done = true
		close(s.handed)
	}
}

// successorBinary is what to start. One that was named over the API must not be a way to run what others have put there: it
// and the folders above it must belong to root or to us, and nobody else may be able to put another file in its place.
func (a *instance) successorBinary(named string) (string, error) {
	path := named
	if path == "" {
		path = a.o.Self
	}
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("%w: %q is not an absolute path", ui.ErrNoUpgrade, path)
	}
	if named != "" {
		// What is looked at is what is started, whatever becomes of the links on the way.
		followed, err := filepath.EvalSymlinks(path)
		if err != nil {
			return "", fmt.Errorf("%w: %w", ui.ErrNoUpgrade, err)
		}
		path = followed
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ui.ErrNoUpgrade, err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return "", fmt.Errorf("%w: %s is not a program", ui.ErrNoUpgrade, path)
	}
	if named == "" {
		return path, nil
	}
	if !onlyOurs(info) {
		return "", fmt.Errorf("%w: %s must belong to root or to admitd's user, and be writable by nobody else", ui.ErrNoUpgrade, path)
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return "", fmt.Errorf("%w: %w", ui.ErrNoUpgrade, err)
		}
		if !onlyOurs(info) {
			return "", fmt.Errorf("%w: others can put a program of theirs in the place of %s: the folder %s must belong to root or to admitd's user, and be writable by nobody else", ui.ErrNoUpgrade, path, dir)
		}
		if dir == "/" {
			return path, nil
		}
	}
}

// onlyOurs reports whether a file or folder is root's or ours, and nobody else can write to it; in a folder with the sticky
// bit, such as /tmp, nobody can replace the files of others.
func onlyOurs(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return false
	}
	return info.Mode().Perm()&0o022 == 0 || info.IsDir() && info.Mode()&os.ModeSticky != 0
}

// launch starts the successor on copies of our listeners and locks.
func (a *instance) launch(binary string) (*successor, error) {
	var b sockets.Bequest
	defer b.Close()
	link, theirs, err := handover.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	err = errors.Join(b.Add(sockets.Control, theirs), b.AddListener(sockets.Gate, a.gateL), b.AddListener(sockets.Admin, a.adminL), a.locks.bequeath(&b))
	var process *os.Process
	if err == nil {
		process, err = b.Start(binary, a.o.Args, append(os.Environ(), a.o.NotifyEnv...))
	}
	if err != nil {
		link.Close()
		return nil, err
	}
	s := &successor{process: process, link: link, exited: make(chan struct{})}
	go func() {
		defer close(s.exited)
		s.end, _ = process.Wait() // it is our child, and nobody else waits for it
	}()
	return s, nil
}

// succeed leads a successor to where it serves. After an error we go on as before.
func (a *instance) succeed(ctx context.Context, binary string, tell func(string)) (int, error) {
	s, err := a.launch(binary)
	if err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, s.link.Close)
	defer stop()
	tell(fmt.Sprintf("started %s, pid %d", binary, s.pid()))
	if err = a.handOver(ctx, s, stop, tell); err == nil {
		return s.pid(), nil
	}
	s.abort()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("the new admitd was not ready within %s (upgrade.timeout)", a.o.Config.Upgrade.Timeout)
	case ctx.Err() != nil:
		err = errStopping
	case errors.Is(err, io.EOF) || errors.Is(err, unix.EPIPE):
		err = fmt.Errorf("the new admitd ended before it was ready (%s); its log says why", s.end)
	}
	return 0, err
}

// handOver is the predecessor's half of the talk up to Serving. What it did is undone when it fails. sure ends the time limit,
// and is false when that has struck.
func (a *instance) handOver(ctx context.Context, s *successor, sure func() bool, tell func(string)) (err error) {
	p, link := a.pool, s.link
	_, _, since := p.journal.Read(0, 1)
	if a.o.Config.Journal.Dir == "" {
		since = 0 // no disk from which the successor could read what came before
	}
	hello := handover.Message{Kind: handover.Hello, Listen: a.o.Config.Listen, AdminListen: a.o.Config.Admin.Listen, Policy: p.store.handedOn(),
		Settings: p.launchedBy, PID: p.swap.Status().PID}
	if err := link.Send(hello); err != nil {
		return err
	}
	if _, err := link.Expect(handover.Prepared); err != nil {
		return err
	}
	tell("the new admitd has read its configuration")
	open, _ := p.serving()
	switch err := p.swap.Release(ctx); {
	case errors.Is(err, supervisor.ErrStopping):
		return errors.New("the engine is being stopped; try again when it is ready")
	case err != nil:
		return err
	}
	defer func() {
		if err != nil {
			a.takeBack(s)
		}
	}()
	if err := a.lend(s, open); err != nil {
		return err
	}
	tell("it has adopted the engine")
	forward := handover.NewForwarder(link)
	// The record first, the books second: whatever is settled between the two is forwarded too, and found settled.
	last := p.journal.Divert(forward.Take)
	defer func() {
		if err != nil {
			p.journal.Divert(nil)
			p.journal.Rewrite(forward.Left())
		}
	}()
	since = max(since, last-min(last, maxPast))
	past, _, _ := p.journal.ReadWhole(since, int(last-since))
	if last == since {
		past = nil
	}
	commit := handover.Message{Kind: handover.Commit, Flights: p.admission.Dump(admission.PerRequest).Requests, Past: past}
	if err := link.Send(commit); err != nil {
		return err
	}
	if _, err := link.Expect(handover.Serving); err != nil {
		return err
	}
	if !sure() {
		return context.Cause(ctx) // the time was up in this very moment, and the link is closed
	}
	a.succession.forward, a.succession.link = forward, link
	tell("it serves; this one finishes its open requests and ends")
	return nil
}

// lend leaves the engine to the successor until that is Ready. Nobody here supervises it meanwhile, and callers must not be
// told for long that an engine serves which is dead: when its first process ends, the upgrade is called off.
func (a *instance) lend(s *successor, open bool) error {
	pid := a.pool.swap.Status().PID
	quit, dead := make(chan struct{}), make(chan bool, 1)
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for pid == 0 || supervisor.Alive(pid) {
			select {
			case <-tick.C:
			case <-quit:
				dead <- false
				return
			}
		}
		s.link.Close()
		dead <- true
	}()
	err := s.link.Send(handover.Message{Kind: handover.Take, Open: open, PID: pid})
	if err == nil {
		_, err = s.link.Expect(handover.Ready)
	}
	close(quit)
	if <-dead {
		return errEngineEnded
	}
	return err
}

// errEngineEnded calls an upgrade off.
var errEngineEnded = errors.New("the engine ended meanwhile; try again when it is ready")

// maxPast bounds the entries that go to the successor's memory in one message; the record on disk has all.
const maxPast = 4000

// takeBack makes the engine ours again after a failed upgrade.
func (a *instance) takeBack(s *successor) {
	s.abort()
	if err := a.pool.swap.Resume(); err != nil {
		a.o.Logger.Error("the engine could not be taken back after a failed upgrade; restart admitd", "error", err)
	}
}

// leave ends the predecessor's part: it accepts nobody any more and waits for its own requests, bounded, while the successor
// hears what becomes of them.
func (a *instance) leave(ctx context.Context, gateSrv, adminSrv server) {
	log, c := a.o.Logger, a.o.Config
	log.Info("another admitd serves now; this one finishes its requests", "requests", a.pool.inFlight(), "connections", a.gateL.Connections())
	sent := make(chan error, 1)
	go func() { sent <- a.succession.forward.Run() }()
	a.admin.Close("admitd is being replaced by a new one")
	short, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := adminSrv.Shutdown(short); err != nil {
		_ = adminSrv.Close()
	}
	forwarded := a.finishRequests(ctx, c.Upgrade.DrainTimeout, sent, log)
	if !a.alone() {
		a.pool.beginStop()
		a.pool.admission.EndAll()
	}
	// Answers that are whole, or were ended with an error just now, are still on their way.
	last, cancelLast := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancelLast()
	if err := gateSrv.Shutdown(last); err != nil {
		_ = gateSrv.Close()
	}
	// Handlers whose connection was closed under them still write their last entries.
	for wait := time.Now().Add(5 * time.Second); a.pool.inFlight() > 0 && time.Now().Before(wait); {
		<-time.After(20 * time.Millisecond)
	}
	a.succession.forward.Finish()
	if forwarded == nil {
		forwarded = func() error { return <-sent }
	}
	if err := forwarded(); err != nil {
		log.Error("the new admitd is gone; the rest of the record is written here", "error", err)
		a.pool.journal.Divert(nil)
		a.pool.journal.Rewrite(a.succession.forward.Left())
	}
}

// finishRequests waits until nobody is left, the time is up, or somebody is in a hurry. It returns how the forwarding ended
// when that ended first, else nil. Connections that wait for a next request count only while there is a successor: nobody is
// served better by our staying when there is none.
func (a *instance) finishRequests(ctx context.Context, limit time.Duration, sent <-chan error, log *slog.Logger) (forwarded func() error) {
	late := time.NewTimer(limit)
	defer late.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	stopping := ctx.Done()
	told := map[admission.ID]int{}
	for !a.alone() || forwarded == nil && a.gateL.Connections() > 0 {
		select {
		case <-tick.C:
			a.tellProgress(told)
		case err := <-sent:
			forwarded = func() error { return err }
			sent = nil
		case <-stopping:
			stopping = nil
			late.Reset(min(limit, a.o.Config.Engine.DrainTimeout))
		case <-a.o.Force:
			return forwarded
		case <-late.C:
			log.Warn("open requests are cut: the time for them is up", "requests", a.pool.inFlight(), "connections", a.gateL.Connections())
			return forwarded
		}
	}
	return forwarded
}

// alone reports that no request and no earlier admitd needs us any more.
func (a *instance) alone() bool {
	if h := a.heir; h != nil && !h.finished() {
		return false
	}
	d := a.pool.admission.Dump(admission.Totals)
	return d.InFlight == 0 && d.Held == 0
}

// tellProgress sends the tokens of requests that have moved, so that the successor knows them to run.
func (a *instance) tellProgress(told map[admission.ID]int) {
	var moved []admission.Reservation
	for _, r := range a.pool.admission.Dump(admission.PerRequest).Requests {
		if r.Generated > told[r.ID] {
			told[r.ID] = r.Generated
			moved = append(moved, r)
		}
	}
	for part := range slices.Chunk(moved, 1000) {
		// A successor that is gone shows in the forwarding.
		_ = a.succession.link.Send(handover.Message{Kind: handover.Flights, Flights: part})
	}
}
