package quota

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"admitd/gate/reason"
)

const secret = "sk-one-4f9a8c"

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func keys(t *testing.T, ks ...Key) *Keys {
	t.Helper()
	k, err := New(ks)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func TestAuthenticate(t *testing.T) {
	k := keys(t,
		Key{ID: "one", SHA256: Hash(secret), Tenant: "acme", Models: []string{"m"}, Class: "fast", MayChooseClass: true},
		Key{ID: "old", SHA256: strings.ToUpper(Hash("sk-old")), Tenant: "beta", Expires: now},
		Key{ID: "later", SHA256: Hash("sk-later"), Tenant: "beta", Expires: now.Add(time.Nanosecond)})
	for _, tc := range []struct {
		name string
		h    http.Header
		code reason.Code
		id   string
	}{
		{"nothing", header(), reason.KeyMissing, ""},
		{"bearer", header("Authorization", "Bearer "+secret), reason.OK, "one"},
		{"bearer in small letters, spaces", header("Authorization", "  bearer   "+secret+" "), reason.OK, "one"},
		{"x-api-key", header("X-Api-Key", secret), reason.OK, "one"},
		{"api-key", header("Api-Key", secret), reason.OK, "one"},
		{"wrong", header("X-Api-Key", secret+"x"), reason.KeyInvalid, ""},
		{"a prefix", header("X-Api-Key", secret[:8]), reason.KeyInvalid, ""},
		{"the hash itself", header("X-Api-Key", Hash(secret)), reason.KeyInvalid, ""},
		{"empty", header("X-Api-Key", ""), reason.KeyInvalid, ""},
		{"bearer of nothing", header("Authorization", "Bearer "), reason.KeyInvalid, ""},
		{"basic", header("Authorization", "Basic "+secret), reason.KeyInvalid, ""},
		{"bare", header("Authorization", secret), reason.KeyInvalid, ""},
		{"twice", header("X-Api-Key", secret, "X-Api-Key", secret), reason.KeyInvalid, ""},
		{"huge", header("X-Api-Key", strings.Repeat("x", maxSecret+1)), reason.KeyInvalid, ""},
		{"the first header decides", header("Authorization", "Bearer wrong", "X-Api-Key", secret), reason.KeyInvalid, ""},
		{"expired at its instant", header("X-Api-Key", "sk-old"), reason.KeyExpired, "old"},
		{"not yet expired", header("X-Api-Key", "sk-later"), reason.OK, "later"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g, code := k.Authenticate(tc.h, now)
			if code != tc.code || g.KeyID != tc.id {
				t.Errorf("%s, key %q; want %s, %q", code, g.KeyID, tc.code, tc.id)
			}
		})
	}
	g, _ := k.Authenticate(header("X-Api-Key", secret), now)
	if g.Tenant != "acme" || g.Class != "fast" || !g.MayChooseClass || len(g.Models) != 1 {
		t.Errorf("grant %+v", g)
	}
}

func TestNoKeysLetEveryoneInAsOneTenant(t *testing.T) {
	for _, k := range []*Keys{nil, keys(t)} {
		g, code := k.Authenticate(header("Authorization", "Basic whatever"), now)
		if code != reason.OK || g.Tenant != AnonymousTenant || !k.Empty() || len(k.List()) != 0 {
			t.Errorf("%s %+v", code, g)
		}
	}
}

func TestBadKeysAreNamed(t *testing.T) {
	good := Key{ID: "a", SHA256: Hash("x"), Tenant: "t"}
	with := func(f func(*Key)) Key {
		k := good
		f(&k)
		return k
	}
	for want, ks := range map[string][]Key{
		"id must be":                 {with(func(k *Key) { k.ID = "" })},
		"tenant must be":             {with(func(k *Key) { k.Tenant = "a b" })},
		"never the secret itself":    {with(func(k *Key) { k.SHA256 = secret })},
		"64 hexadecimal":             {with(func(k *Key) { k.SHA256 = Hash("x")[:62] })},
		"models must be names":       {with(func(k *Key) { k.Models = []string{"m", "m"} })},
		"the id is taken":            {good, with(func(k *Key) { k.SHA256 = Hash("y") })},
		"the same secret as key":     {good, with(func(k *Key) { k.ID = "b" })},
		"key 2 (\"b!\"): id must be": {good, with(func(k *Key) { k.ID = "b!" })},
	} {
		if _, err := New(ks); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

// Whoever pastes the secret into the wrong field must not find it in a log.
func TestErrorsAndPrintsDoNotQuoteSecrets(t *testing.T) {
	_, err := New([]Key{{ID: secret + " oops", SHA256: secret, Tenant: "t"}})
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("error %v", err)
	}
	k := keys(t, Key{ID: "one", SHA256: Hash(secret), Tenant: "acme"})
	g, _ := k.Authenticate(header("X-Api-Key", secret), now)
	if s := fmt.Sprintf("%+v %#v %+v", k.List(), k, g); strings.Contains(s, secret) {
		t.Errorf("printed %s", s)
	}
}

func FuzzAuthenticate(f *testing.F) {
	f.Add("Bearer "+secret, "")
	f.Add("", secret)
	f.Add("Bearer", " ")
	k, err := New([]Key{{ID: "one", SHA256: Hash(secret), Tenant: "acme"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, auth, key string) {
		h := http.Header{}
		if auth != "" {
			h["Authorization"] = []string{auth}
		}
		if key != "" {
			h["X-Api-Key"] = []string{key}
		}
		// The first header that is there decides alone, and only the whole secret does.
		said := strings.TrimSpace(key)
		if auth != "" {
			scheme, rest, _ := strings.Cut(strings.TrimSpace(auth), " ")
			if said = ""; strings.EqualFold(scheme, "bearer") {
				said = strings.TrimSpace(rest)
			}
		}
		g, code := k.Authenticate(h, now)
		if (code == reason.OK) != (said == secret) || (g.Tenant == "acme") != (said == secret) {
			t.Errorf("%q and %q: %s as %+v", auth, key, code, g)
		}
	})
}
