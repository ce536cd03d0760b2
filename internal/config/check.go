package config

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"

	"admitd/gate/dialect"
	"admitd/gate/reason"
	"admitd/internal/sockets"
	"admitd/internal/strict"
)

// maxRing bounds the entries kept in memory: each takes up to about 4 KiB, with its trace and signals.
const maxRing = 1_000_000

// idPattern is what names of keys and tenants are made of, as package gate/quota takes them.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// variablePattern is what a shell can export (POSIX, Base Definitions, 3.230).
var variablePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// checker collects complaints, each at the place of its key.
type checker struct {
	file string
	src  []byte
	// origin names the flag or variable that set a key, "" for none; nil when there are none.
	origin func(key string) string
	errs   []error
}

func (k *checker) add(path, format string, args ...any) {
	if k.origin != nil {
		if from := k.origin(path); from != "" {
			k.errs = append(k.errs, &strict.Error{Places: []strict.Place{{File: from, Field: path, Text: fmt.Sprintf(format, args...)}}})
			return
		}
	}
	if len(k.src) == 0 {
		k.errs = append(k.errs, &strict.Error{Places: []strict.Place{{Field: path, Text: fmt.Sprintf(format, args...)}}})
		return
	}
	k.errs = append(k.errs, strict.Errorf(k.file, k.src, path, format, args...))
}

// has reports whether the file itself holds a key.
func (k *checker) has(path string) bool {
	if len(k.src) == 0 {
		return false
	}
	parent := path[:strings.LastIndex(path, ".")]
	at, above := strict.Locate(k.file, k.src, path), strict.Locate(k.file, k.src, parent)
	return at.Line != above.Line || at.Column != above.Column
}

func (k *checker) oneOf(path, v string, allowed ...string) {
	if !slices.Contains(allowed, v) {
		k.add(path, "%q is not one of %s", v, strings.Join(allowed, ", "))
	}
}

func (k *checker) atLeast(path string, v, least time.Duration) {
	if v < least {
		k.add(path, "%s is too short; the least is %s", v, least)
	}
}

func (k *checker) address(path, v string) {
	if _, _, err := sockets.ParseAddress(v); err != nil {
		k.add(path, "%v", err)
	}
}

func (c Config) check(k *checker) error {
	k.address("listen", c.Listen)
	k.address("admin.listen", c.Admin.Listen)
	if c.Listen == c.Admin.Listen && !strings.HasSuffix(c.Listen, ":0") {
		k.add("admin.listen", "%s is the model API's own address; the admin listener needs another", c.Admin.Listen)
	}
	c.checkListener(k)
	c.checkNames(k)
	c.checkEngine(k)
	c.checkClasses(k)
	c.checkKeys(k)
	c.checkLimits(k)
	c.checkRest(k)
	return strict.Join(k.errs...)
}

func (c Config) checkEngine(k *checker) {
	e := c.Engine
	k.oneOf("engine.kind", e.Kind, "auto", "vllm", "sglang", "sim", "external")
	if e.Kind == "external" {
		u, err := url.Parse(e.URL)
		switch {
		case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
			k.add("engine.url", "an external engine needs a URL such as http://127.0.0.1:8000%s", quoted(e.URL))
		case u.User != nil:
			k.add("engine.url", "a URL must not hold a user name or password; put the engine's key into an environment variable and name that in engine.key_env")
		}
	} else if e.URL != "" {
		k.add("engine.url", "only an external engine has a URL; set engine.kind: external")
	}
	if e.KeyEnv != "" && !variablePattern.MatchString(e.KeyEnv) {
		k.add("engine.key_env", "needs the name of an environment variable, such as ENGINE_KEY; the key itself goes into that variable")
	}
	switch {
	case e.Version == "":
	case e.Binary != "":
		k.add("engine.version", "engine.binary names the program already; take one of the two away")
	case e.Kind == "external" || e.Kind == "sim":
		k.add("engine.version", "only an installed vllm or sglang has a version to choose; engine.kind is %s", e.Kind)
	}
	if e.Port < 0 || e.Port > 65535 {
		k.add("engine.port", "%d is not a port from 0 to 65535", e.Port)
	}
	if e.Slots < 0 {
		k.add("engine.slots", "%d is below 0", e.Slots)
	}
	if e.MaxRestarts < 0 {
		k.add("engine.max_restarts", "%d is below 0", e.MaxRestarts)
	}
	k.atLeast("engine.start_timeout", e.StartTimeout, time.Second)
	k.atLeast("engine.drain_timeout", e.DrainTimeout, 0)
	k.atLeast("engine.stop_grace", e.StopGrace, 0)
	k.atLeast("engine.stall_after", e.StallAfter, 5*time.Second)
	if e.ProbeAfter != 0 {
		k.atLeast("engine.probe_after", e.ProbeAfter, 10*time.Second)
	}
	k.atLeast("engine.restart_window", e.Window, time.Second)
}

// quoted shows a value that cannot hold a password.
func quoted(url string) string {
	if url == "" || strings.Contains(url, "@") {
		return ""
	}
	return fmt.Sprintf(", got %q", url)
}

// checkNames checks the names under which the model and the dashboard are asked for.
func (c Config) checkNames(k *checker) {
	seen := map[string]bool{c.ServedName(): true}
	for i, a := range c.Aliases {
		at := fmt.Sprintf("aliases.%d", i)
		switch {
		case a == "":
			k.add(at, "an alias cannot be empty")
		case seen[a]:
			k.add(at, "%q is the model's name, or stands in the list twice", a)
		}
		seen[a] = true
	}
	for i, h := range c.Admin.AllowedHosts {
		if h == "" || strings.ContainsAny(h, "/:*@ ") && net.ParseIP(h) == nil {
			k.add(fmt.Sprintf("admin.allowed_hosts.%d", i), "%q is not a host name such as gpu.example; leave scheme, port and patterns away", h)
		}
	}
}

func (c Config) checkClasses(k *checker) {
	if _, ok := c.Classes[c.DefaultClass]; !ok {
		k.add("default_class", "%q is not a class; the classes are %s", c.DefaultClass, strings.Join(c.ClassNames(), ", "))
	}
	for name, s := range c.Classes {
		if s.TTFT < 0 || s.TPOT < 0 {
			k.add("classes."+name, "limits cannot be below 0")
		}
	}
}

// ClassNames lists the classes, sorted.
func (c Config) ClassNames() []string {
	names := make([]string, 0, len(c.Classes))
	for n := range c.Classes {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

func (c Config) checkKeys(k *checker) {
	ids, hashes := map[string]bool{}, map[string]bool{}
	for i, key := range c.Keys {
		at := fmt.Sprintf("keys.%d", i)
		switch {
		case !idPattern.MatchString(key.ID):
			k.add(at+".id", "needs 1 to 64 of letters, digits, dot, dash and underscore")
		case ids[key.ID]:
			k.add(at+".id", "every key needs an id of its own; %s is taken", key.ID)
		}
		if key.Tenant != "" && !idPattern.MatchString(key.Tenant) {
			k.add(at+".tenant", "needs 1 to 64 of letters, digits, dot, dash and underscore")
		}
		ids[key.ID] = true
		if b, err := hex.DecodeString(key.SHA256); err != nil || len(b) != 32 {
			k.add(at+".sha256", "needs the 64 hex digits that `printf %%s KEY | sha256sum` prints")
		} else if hashes[string(b)] {
			k.add(at+".sha256", "the same key stands in the list twice")
		} else {
			hashes[string(b)] = true
		}
		if key.Expires.IsZero() && k.has(at+".expires") {
			k.add(at+".expires", "is not a time such as 2026-12-31T00:00:00Z; a key that never expires has no expires")
		}
		if _, ok := c.Classes[key.Class]; key.Class != "" && !ok {
			k.add(at+".class", "%q is not a class; the classes are %s", key.Class, strings.Join(c.ClassNames(), ", "))
		}
	}
	if len(c.Keys) == 0 && !c.AllowAnonymous && reachable(c.Listen) {
		k.add("listen", "%s can be reached by others and no keys are configured: add keys, listen on 127.0.0.1, or say allow_anonymous: true (--allow-anonymous)", c.Listen)
	}
}

// reachable reports whether others can reach a well-formed address; a malformed one has its own complaint.
func reachable(addr string) bool {
	_, _, err := sockets.ParseAddress(addr)
	return err == nil && !sockets.Local(addr)
}

func (c Config) checkLimits(k *checker) {
	l := c.Limits
	if l.MaxBody < 1<<10 {
		k.add("limits.max_body", "%s is too small; the least is 1KiB", l.MaxBody)
	}
	if l.MaxBuffered < l.MaxBody {
		k.add("limits.max_buffered", "%s is below max_body (%s): a single large body could never be read", l.MaxBuffered, l.MaxBody)
	}
	if l.MaxHeader < 1<<10 {
		k.add("limits.max_header", "%s is too small; the least is 1KiB", l.MaxHeader)
	}
	if l.HelperConcurrency < 1 {
		k.add("limits.helper_concurrency", "%d is below 1", l.HelperConcurrency)
	}
	k.atLeast("limits.header_timeout", l.HeaderTimeout, 100*time.Millisecond)
	k.atLeast("limits.body_timeout", l.BodyTimeout, time.Second)
	k.atLeast("limits.idle_timeout", l.IdleTimeout, time.Second)
}

func (c Config) checkOpenPaths(k *checker) {
	seen := map[string]bool{}
	for i, p := range c.Relay.OpenPaths {
		at := fmt.Sprintf("relay.open_paths.%d", i)
		k.oneOf(at+".class", p.Class, "inference", "helper")
		_, err := dialect.NewPaths(dialect.Opening{Path: p.Path, Class: dialect.Helper})
		switch {
		case !strings.HasPrefix(p.Path, "/"):
			k.add(at+".path", "%q does not begin with /", p.Path)
		case seen[p.Path]:
			k.add(at+".path", "%s stands in the list twice", p.Path)
		case err != nil:
			k.add(at+".path", "%v", err)
		}
		seen[p.Path] = true
	}
}

func (c Config) checkRest(k *checker) {
	k.oneOf("relay.response_model", c.Relay.ResponseModel, "asked", "engine")
	k.atLeast("relay.first_event_wait", c.Relay.FirstEventWait, 0)
	if c.Relay.WriteStall != 0 {
		k.atLeast("relay.write_stall", c.Relay.WriteStall, time.Second)
	}
	if c.Relay.KeepAlive != 0 {
		k.atLeast("relay.keep_alive", c.Relay.KeepAlive, time.Second)
	}
	c.checkOpenPaths(k)
	for code, status := range c.RefuseCodes {
		at := "refuse_codes." + string(code)
		if e, ok := reason.Lookup(code); !ok || e.Status == 0 {
			k.add(at, "%q is not a reason of a refusal; docs/reasons.md lists them", code)
		}
		if status < 400 || status > 599 {
			k.add(at, "%d is not a status from 400 to 599", status)
		}
	}
	k.atLeast("signals.min_interval", c.Signals.MinInterval, 20*time.Millisecond)
	if c.Signals.MaxInterval < c.Signals.MinInterval {
		k.add("signals.max_interval", "%s is below min_interval (%s)", c.Signals.MaxInterval, c.Signals.MinInterval)
	}
	if c.Signals.StaleAfter <= c.Signals.MaxInterval {
		k.add("signals.stale_after", "%s is not above max_interval (%s): every idle reading would be stale", c.Signals.StaleAfter, c.Signals.MaxInterval)
	}
	k.atLeast("signals.timeout", c.Signals.Timeout, 100*time.Millisecond)
	k.atLeast("gpu.interval", c.GPU.Interval, 100*time.Millisecond)
	if c.Journal.Ring < 100 {
		k.add("journal.ring", "%d is too few; the least is 100", c.Journal.Ring)
	}
	if c.Journal.Ring > maxRing {
		k.add("journal.ring", "%d is too many; the most is %d, which can take 4 GiB of memory", c.Journal.Ring, maxRing)
	}
	if c.Journal.MaxBytes < 1<<20 {
		k.add("journal.max_bytes", "%s is too small; the least is 1MiB", c.Journal.MaxBytes)
	}
	if c.Journal.KeepBytes < c.Journal.MaxBytes {
		k.add("journal.keep_bytes", "%s is less than one file (journal.max_bytes, %s)", c.Journal.KeepBytes, c.Journal.MaxBytes)
	}
	if c.Journal.MaxAge != 0 {
		k.atLeast("journal.max_age", c.Journal.MaxAge, time.Minute)
	}
	if c.Journal.KeepAge != 0 {
		k.atLeast("journal.keep_age", c.Journal.KeepAge, time.Minute)
	}
	k.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	k.oneOf("log.format", c.Log.Format, "text", "json")
}
