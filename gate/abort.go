package gate

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"admitd/gate/dialect"
)

const (
	// sglang is the engine, as signals names it, whose requests carry a name of ours and are ended by it: until
	// August 2026 it lost the abort of a caller that had left, and generated for minutes for nobody (sglang#34894).
	sglang = "sglang"
	// abortWithin bounds the message that ends a request.
	abortWithin = 2 * time.Second
)

// nameForEngine gives the request its name at the engine, where the engine can be told to end it by that. A request of
// several sequences has none: SGLang wants a list there. The name is ours alone and as long as all others, because
// SGLang ends every request whose name begins with the one it is told.
func (a *arrival) nameForEngine() {
	k := a.ep.Kind
	snap := a.pool.snapshot()
	if snap == nil || snap.Engine != sglang || a.facts.Sequences*a.facts.Prompts != 1 || k != dialect.KindChat && k != dialect.KindCompletions {
		return
	}
	var name [16]byte
	_, _ = rand.Read(name[:]) // never fails
	a.rid = hex.EncodeToString(name[:])
}

// endAtEngine tells the engine that nobody waits for this request any more. Closing the connection has told it already;
// this is for an engine that has not listened.
func (a *arrival) endAtEngine() {
	if a.rid == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.r.Context()), abortWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://engine/abort_request", strings.NewReader(fmt.Sprintf(`{"rid":%q}`, a.rid)))
	if err != nil {
		return // not with this URL
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := a.pool.Engine.Transport().RoundTrip(req)
	if err != nil {
		a.s.o.Logger.Warn("the engine could not be told that a caller has left", "request_id", a.id, "pool", a.pool.Model, "error", plainError(err))
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<10)) // its text is of no use
	_ = resp.Body.Close()
}
