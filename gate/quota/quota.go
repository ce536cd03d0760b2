// Package quota knows the keys of callers and whose they are.
//
// Goal: from request headers to a Grant (tenant, allowed models, class) or the reason why not.
//
// Non-goals: budgets and rates, storing or making secrets, HTTP.
//
// Invariants: a secret is hashed on arrival and never kept, printed or compared as text; every key is compared
// on every try, so that the time taken tells nothing; a header that is malformed is an invalid key, never an
// anonymous caller.
package quota

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"admitd/gate/reason"
)

// AnonymousTenant is the tenant of every caller when no keys are configured.
const AnonymousTenant = "default"

// maxSecret bounds what is hashed, in bytes; a longer value is an invalid key.
const maxSecret = 4096

// Key is one caller's key as configured. The secret itself is not in it.
type Key struct {
	// ID names the key in the journal: 1 to 64 of letters, digits, dot, dash and underscore.
	ID string
	// SHA256 is the hash of the secret, 64 hexadecimal digits.
	SHA256 string
	// Tenant is whose key it is, by the rules of ID.
	Tenant string
	// Models are the names it may use; empty means all.
	Models []string
	// Class is its SLO class; "" means the gate's default.
	Class string
	// Expires is the first instant at which it is refused; zero means never.
	Expires time.Time
	// MayChooseClass says whether X-Admitd-Class is obeyed.
	MayChooseClass bool
}

// Grant is what a caller may do.
type Grant struct {
	KeyID  string
	Tenant string
	// Models are the names the caller may use; empty means all. Not to be changed.
	Models         []string
	Class          string
	MayChooseClass bool
}

// Keys is an immutable set of keys, safe for concurrent use. A nil *Keys is the empty set.
type Keys struct {
	entries []entry
}

type entry struct {
	hash [sha256.Size]byte
	key  Key
}

var idPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// New checks the keys and returns the set; the error names every mistake, by key id. No keys at all is the set
// that lets everyone in as AnonymousTenant.
func New(keys []Key) (*Keys, error) {
	var bad []error
	ids, hashes := map[string]bool{}, map[[sha256.Size]byte]string{}
	out := &Keys{}
	for i, k := range keys {
		e, err := check(k)
		if err != nil {
			bad = append(bad, fmt.Errorf("key %d (%q): %w", i+1, cut(k.ID), err))
			continue
		}
		if ids[k.ID] {
			bad = append(bad, fmt.Errorf("key %d (%q): the id is taken by an earlier key; ids must differ", i+1, k.ID))
		}
		if other, taken := hashes[e.hash]; taken {
			bad = append(bad, fmt.Errorf("key %d (%q): the same secret as key %q; give each key its own", i+1, k.ID, other))
		}
		ids[k.ID], hashes[e.hash] = true, k.ID
		out.entries = append(out.entries, e)
	}
	if len(bad) > 0 {
		return nil, errors.Join(bad...)
	}
	return out, nil
}

// cut keeps an error short when somebody has put a secret where the id belongs.
func cut(id string) string {
	if len(id) > 12 && !idPattern.MatchString(id) {
		return id[:4] + "..."
	}
	return id
}

func check(k Key) (entry, error) {
	var bad []error
	if !idPattern.MatchString(k.ID) {
		bad = append(bad, errors.New("id must be 1 to 64 of letters, digits, dot, dash and underscore"))
	}
	if !idPattern.MatchString(k.Tenant) {
		bad = append(bad, errors.New("tenant must be 1 to 64 of letters, digits, dot, dash and underscore"))
	}
	raw, err := hex.DecodeString(k.SHA256)
	if err != nil || len(raw) != sha256.Size {
		bad = append(bad, fmt.Errorf("sha256 must be the 64 hexadecimal digits of the secret's SHA-256, not %d characters of another kind; "+
			"never the secret itself", len(k.SHA256)))
	}
	seen := map[string]bool{}
	for _, m := range k.Models {
		if m == "" || seen[m] {
			bad = append(bad, fmt.Errorf("models must be names, each once; %q is not", m))
		}
		seen[m] = true
	}
	if len(bad) > 0 {
		return entry{}, errors.Join(bad...)
	}
	k.Models = slices.Clone(k.Models)
	return entry{hash: [sha256.Size]byte(raw), key: k}, nil
}

// Hash returns the SHA256 field for a secret.
func Hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// Empty reports whether everyone is let in.
func (k *Keys) Empty() bool { return k == nil || len(k.entries) == 0 }

// List returns the configured keys in order, for checks and displays. The caller may keep the slice, not change
// what is in it.
func (k *Keys) List() []Key {
	if k == nil {
		return nil
	}
	out := make([]Key, len(k.entries))
	for i, e := range k.entries {
		out[i] = e.key
	}
	return out
}

// Authenticate finds whose request it is. The code is reason.OK, KeyMissing, KeyInvalid or KeyExpired; for
// KeyExpired the Grant still names key and tenant, for the record. The secret is read from Authorization: Bearer,
// else x-api-key, else api-key: the first header that is there decides, alone. Without configured keys nothing
// is read.
func (k *Keys) Authenticate(h http.Header, now time.Time) (Grant, reason.Code) {
	if k.Empty() {
		return Grant{Tenant: AnonymousTenant, MayChooseClass: true}, reason.OK
	}
	secret, code := secretOf(h)
	if code != reason.OK {
		return Grant{}, code
	}
	sum := sha256.Sum256([]byte(secret))
	found := -1
	for i := range k.entries {
		if subtle.ConstantTimeCompare(sum[:], k.entries[i].hash[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return Grant{}, reason.KeyInvalid
	}
	key := &k.entries[found].key
	g := Grant{KeyID: key.ID, Tenant: key.Tenant, Models: key.Models, Class: key.Class, MayChooseClass: key.MayChooseClass}
	if !key.Expires.IsZero() && !now.Before(key.Expires) {
		return g, reason.KeyExpired
	}
	return g, reason.OK
}

// SecretHeaders are the request headers that carry a caller's secret; they are never passed on or recorded.
func SecretHeaders() []string { return []string{"Authorization", "X-Api-Key", "Api-Key"} }

func secretOf(h http.Header) (string, reason.Code) {
	for _, name := range SecretHeaders() {
		values := h.Values(name)
		if len(values) == 0 {
			continue
		}
		if len(values) > 1 {
			return "", reason.KeyInvalid
		}
		v := strings.TrimSpace(values[0])
		if name == "Authorization" {
			scheme, rest, ok := strings.Cut(v, " ")
			if !ok || !strings.EqualFold(scheme, "Bearer") {
				return "", reason.KeyInvalid
			}
			v = strings.TrimSpace(rest)
		}
		if v == "" || len(v) > maxSecret {
			return "", reason.KeyInvalid
		}
		return v, reason.OK
	}
	return "", reason.KeyMissing
}
