//go:build race

package wire

import (
	"errors"
	"syscall"
)

// readNow is the same as without the race detector, through what the detector knows: it takes what was written to a socket
// for done before what reads it.
func readNow(fd int, p []byte) (int, error) { return again(syscall.Read, fd, p) }

// sendNow is the same as without the race detector, see readNow.
func sendNow(fd int, p []byte) (int, error) { return again(syscall.Write, fd, p) }

func again(f func(int, []byte) (int, error), fd int, p []byte) (int, error) {
	for {
		n, err := f(fd, p)
		if !errors.Is(err, syscall.EINTR) {
			return max(n, 0), err
		}
	}
}
