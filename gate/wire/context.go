package wire

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Context is a context that ends when its parent does or when Cancel is called. It does what one of context.WithCancel does,
// for less: a request needs several, and those of package context make a channel, a map and a closure each. The Server gives
// one to each request.
type Context struct {
	parent context.Context //nolint:containedctx // it is one
	// unhook takes it from the hands of a parent of another kind.
	unhook func() bool
	over   atomic.Bool

	mu  sync.Mutex
	err error
	// done is made when somebody asks for it.
	done chan struct{}
	// hook and more are told of the end.
	hook ender
	more []ender
}

// ender is told, once, that a context has ended, by whoever ended it: it must not wait, nor ask the context to do anything.
type ender interface{ contextEnded(err error) }

// NewContext returns a context below parent. Cancel must be called when it is not needed any more.
func NewContext(parent context.Context) *Context {
	c := &Context{}
	c.Begin(parent)
	return c
}

// Begin makes the zero Context one below parent.
func (c *Context) Begin(parent context.Context) {
	c.parent = parent
	switch p := parent.(type) {
	case *Context:
		if !p.add(c) {
			c.contextEnded(p.Err())
		}
	default:
		if p.Done() != nil {
			c.unhook = context.AfterFunc(p, func() { c.contextEnded(p.Err()) })
		}
	}
}

// Cancel ends it.
func (c *Context) Cancel() {
	c.contextEnded(context.Canceled)
	switch p := c.parent.(type) {
	case *Context:
		p.remove(c)
	default:
		if c.unhook != nil {
			c.unhook()
		}
	}
}

func (c *Context) contextEnded(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	c.over.Store(true)
	if c.done != nil {
		close(c.done)
	}
	hook, more := c.hook, c.more
	c.hook, c.more = nil, nil
	c.mu.Unlock()
	if hook != nil {
		hook.contextEnded(err)
	}
	for _, e := range more {
		e.contextEnded(err)
	}
}

// add has e told of the end; false when it is over already.
func (c *Context) add(e ender) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return false
	case c.hook == nil:
		c.hook = e
	default:
		c.more = append(c.more, e)
	}
	return true
}

// remove forgets e; false when it was told or never added.
func (c *Context) remove(e ender) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hook == e {
		c.hook = nil
		return true
	}
	for i := range c.more {
		if c.more[i] == e {
			c.more = append(c.more[:i], c.more[i+1:]...)
			return true
		}
	}
	return false
}

// Deadline implements context.Context.
func (c *Context) Deadline() (time.Time, bool) { return c.parent.Deadline() }

// Value implements context.Context.
func (c *Context) Value(key any) any { return c.parent.Value(key) }

// Err implements context.Context.
func (c *Context) Err() error {
	if !c.over.Load() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Done implements context.Context.
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
	}
	return c.done
}

// afterwards is a function that is called in a goroutine of its own when a context has ended.
type afterwards struct{ f func() }

func (a *afterwards) contextEnded(error) { go a.f() }

// AfterFunc is what package context uses for contexts below this one, so that they need no goroutine.
func (c *Context) AfterFunc(f func()) (stop func() bool) {
	a := &afterwards{f}
	if !c.add(a) {
		go f()
		return func() bool { return false }
	}
	return func() bool { return c.remove(a) }
}
