package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// Whatever chunks and reads cut an answer into, every event is counted and the end is seen.
func TestEventsAreCountedHoweverTheyAreCut(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	body := strings.Repeat(eventHead+"1700000000000000000}\n\n", 50) + "data: [DONE]\n\n"
	for range 200 {
		var b strings.Builder
		b.WriteString("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		for rest := body; rest != ""; {
			n := min(len(rest), 1+rnd.IntN(400))
			fmt.Fprintf(&b, "%x\r\n%s\r\n", n, rest[:n])
			rest = rest[n:]
		}
		text := b.String() + "0\r\n\r\n"
		a := answerReader{}
		for rest := text; rest != ""; {
			if a.done {
				t.Fatal("done before the end")
			}
			n := min(len(rest), 1+rnd.IntN(500))
			a.see([]byte(rest[:n]))
			rest = rest[n:]
		}
		if !a.done || a.events != 50 || a.status != 200 {
			t.Fatalf("done %t, %d events, status %d", a.done, a.events, a.status)
		}
	}
}
