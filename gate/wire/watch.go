package wire

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// watcher tells when the other side of a connection has ended it, in whole or its sending half, without anything being
// read. One kernel event queue, edge-triggered, serves all connections: each costs one system call when it is added
// and nothing for a request. The queue itself waits in the runtime's poller, so that no thread waits in the kernel.
type watcher struct {
	queue *os.File
	fd    int

	mu    sync.Mutex
	conns map[uint64]*conn
	next  uint64
}

const watchedEvents = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR | unix.EPOLLET

func newWatcher() (*watcher, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make an event queue: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("make an event queue: %w", err)
	}
	w := &watcher{queue: os.NewFile(uintptr(fd), "epoll"), fd: fd, conns: map[uint64]*conn{}}
	raw, err := w.queue.SyscallConn()
	if err != nil {
		_ = w.queue.Close()
		return nil, fmt.Errorf("make an event queue: %w", err)
	}
	go func() {
		events := make([]unix.EpollEvent, 128)
		// It ends when the queue is closed.
		_ = raw.Read(func(fd uintptr) bool {
			for {
				n, err := unix.EpollWait(int(fd), events, 0)
				if errors.Is(err, unix.EINTR) {
					continue
				}
				if n <= 0 {
					return false
				}
				w.tell(events[:n])
			}
		})
	}()
	return w, nil
}

// add watches a connection from now on. Descriptors are used again, so an event carries a number that is not.
func (w *watcher) add(c *conn) error {
	w.mu.Lock()
	w.next++
	c.id = w.next
	w.conns[c.id] = c
	w.mu.Unlock()
	ev := unix.EpollEvent{Events: watchedEvents, Fd: int32(uint32(c.id)), Pad: int32(uint32(c.id >> 32))}
	var err error
	if cerr := c.raw.Control(func(fd uintptr) { err = unix.EpollCtl(w.fd, unix.EPOLL_CTL_ADD, int(fd), &ev) }); cerr != nil {
		err = cerr
	}
	if err != nil {
		w.remove(c)
		return fmt.Errorf("watch a connection: %w", err)
	}
	return nil
}

// remove forgets a connection. The kernel forgets it when it is closed.
func (w *watcher) remove(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, c.id)
}

func (w *watcher) tell(events []unix.EpollEvent) {
	for _, ev := range events {
		id := uint64(uint32(ev.Fd)) | uint64(uint32(ev.Pad))<<32
		w.mu.Lock()
		c := w.conns[id]
		w.mu.Unlock()
		if c != nil {
			c.left()
		}
	}
}

// close ends the watching.
func (w *watcher) close() { _ = w.queue.Close() }
