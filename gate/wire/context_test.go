package wire

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

type told struct{ errs []error }

func (t *told) contextEnded(err error) { t.errs = append(t.errs, err) }

func TestContextEndsWithItsParentAndTellsOnce(t *testing.T) {
	tests := []struct {
		name string
		end  func(top, middle *Context)
		want error
	}{
		{"itself", func(_, middle *Context) { middle.Cancel() }, context.Canceled},
		{"the parent", func(top, _ *Context) { top.Cancel() }, context.Canceled},
		{"both", func(top, middle *Context) { middle.Cancel(); top.Cancel() }, context.Canceled},
		{"neither", func(_, _ *Context) {}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			top := NewContext(context.Background())
			middle := NewContext(top)
			first, second, gone := &told{}, &told{}, &told{}
			for _, e := range []ender{first, second, gone} {
				if !middle.add(e) {
					t.Fatal("not taken")
				}
			}
			if !middle.remove(gone) || middle.remove(gone) {
				t.Fatal("not removed once")
			}
			below, cancel := context.WithCancel(middle)
			defer cancel()
			tt.end(top, middle)
			if !errors.Is(middle.Err(), tt.want) || tt.want == nil && middle.Err() != nil {
				t.Errorf("Err() = %v, want %v", middle.Err(), tt.want)
			}
			if tt.want == nil {
				select {
				case <-middle.Done():
					t.Error("Done is closed")
				default:
				}
				middle.Cancel()
			}
			<-middle.Done()
			<-below.Done()
			if len(first.errs) != 1 || len(second.errs) != 1 || len(gone.errs) != 0 {
				t.Errorf("told %d, %d and %d times; want 1, 1 and 0", len(first.errs), len(second.errs), len(gone.errs))
			}
			if middle.add(first) {
				t.Error("an ended context takes somebody to be told")
			}
			if late := NewContext(middle); late.Err() == nil {
				t.Error("a context below an ended one lives")
			}
			top.Cancel()
		})
	}
}

func TestContextBelowOneOfAnotherKindEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		parent, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "v"), time.Second)
		defer cancel()
		c := NewContext(parent)
		defer c.Cancel()
		if at, ok := c.Deadline(); !ok || time.Until(at) != time.Second || c.Value(key{}) != "v" {
			t.Errorf("deadline %v, value %v are not the parent's", at, c.Value(key{}))
		}
		<-c.Done()
		if !errors.Is(c.Err(), context.DeadlineExceeded) {
			t.Errorf("Err() = %v, want that of the parent", c.Err())
		}
	})
}

func TestContextLetsGoOfItsParent(t *testing.T) {
	top := NewContext(context.Background())
	defer top.Cancel()
	for range 3 {
		NewContext(top).Cancel()
	}
	if top.hook != nil || len(top.more) != 0 {
		t.Error("a parent keeps contexts that have ended")
	}
	stop := top.AfterFunc(func() { t.Error("called after it was stopped") })
	if !stop() || stop() {
		t.Error("not stopped once")
	}
}
