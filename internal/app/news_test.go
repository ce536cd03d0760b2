package app

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"admitd/gate/dialect"
	"admitd/gate/quota"
	"admitd/internal/config"
)

// Where progress lines are shown the log does not repeat them, also not through loggers made of it.
func TestNewsIsSaidOnce(t *testing.T) {
	for _, c := range []struct {
		progress *Screen
		want     string
	}{
		{nil, "level=INFO msg=news component=x g.a=1\nlevel=WARN msg=trouble component=x g.a=1\n"},
		{NewScreen(&bytes.Buffer{}, nil), "level=WARN msg=trouble component=x g.a=1\n"},
	} {
		var out bytes.Buffer
		h := slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})
		l := news(Options{Logger: slog.New(h), Progress: c.progress}).With("component", "x").WithGroup("g").With("a", 1)
		l.Info("news")
		l.Warn("trouble")
		if got := strings.TrimSpace(out.String()); got != strings.TrimSpace(c.want) {
			t.Errorf("%s\nwant\n%s", got, c.want)
		}
	}
}

func TestConfigurationInTheGatesWords(t *testing.T) {
	expires := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	got := quotaKeys([]config.Key{
		{ID: "a", SHA256: "aa"},
		{ID: "b", SHA256: "bb", Tenant: "acme", Models: []string{"m"}, Class: "batch", Expires: expires, MayChooseClass: true},
	})
	want := []quota.Key{
		{ID: "a", SHA256: "aa", Tenant: "a"},
		{ID: "b", SHA256: "bb", Tenant: "acme", Models: []string{"m"}, Class: "batch", Expires: expires, MayChooseClass: true},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if none(0) >= 0 || none(time.Second) != time.Second {
		t.Error("0 in the file means not to wait; in the gate it would mean the default")
	}
	paths := openPaths([]config.OpenPath{{Path: "/sleep", Class: "helper"}})
	if d := cmp.Diff([]dialect.Opening{{Path: "/sleep", Class: "helper"}}, paths); d != "" {
		t.Error(d)
	}
}
