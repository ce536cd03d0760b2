package install

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
)

// releasePattern is a version as PEP 440 writes it, without epoch: release numbers, then what stands before or after a
// release. The local part, +cpu, is ignored: it names a build.
var releasePattern = regexp.MustCompile(`^v?(\d{1,9}(?:\.\d{1,9}){0,5})((?:[._-]?(?:a|b|rc|dev|post)\d{0,9}){0,3})(?:\+[A-Za-z0-9.]{1,64})?$`)

// release is a version that can be compared.
type release struct {
	numbers []int
	// stage is -1 before the release (a, b, rc, dev), 0 for it, 1 after it (post); rest orders versions of one stage.
	stage int
	rest  string
}

func parseVersion(s string) (release, bool) {
	m := releasePattern.FindStringSubmatch(s)
	if m == nil {
		return release{}, false
	}
	var r release
	for part := range strings.SplitSeq(m[1], ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return release{}, false
		}
		r.numbers = append(r.numbers, n)
	}
	for len(r.numbers) > 1 && r.numbers[len(r.numbers)-1] == 0 {
		r.numbers = r.numbers[:len(r.numbers)-1]
	}
	r.rest = strings.TrimLeft(m[2], "._-")
	switch {
	case strings.HasPrefix(r.rest, "post"):
		r.stage = 1
	case r.rest != "":
		r.stage = -1
	}
	return r, true
}

// compare is negative when r is older than other, 0 for the same release, positive when it is newer.
func (r release) compare(other release) int {
	for i := range max(len(r.numbers), len(other.numbers)) {
		var a, b int
		if i < len(r.numbers) {
			a = r.numbers[i]
		}
		if i < len(other.numbers) {
			b = other.numbers[i]
		}
		if a != b {
			return cmp.Compare(a, b)
		}
	}
	if r.stage != other.stage {
		return cmp.Compare(r.stage, other.stage)
	}
	return cmp.Compare(r.rest, other.rest)
}

// newer reports whether version a is newer than b. One that cannot be read is older than all that can.
func newer(a, b string) bool {
	ra, okA := parseVersion(a)
	rb, okB := parseVersion(b)
	if !okA || !okB {
		return okA
	}
	return ra.compare(rb) > 0
}

// ValidVersion reports whether a text is a version that can be asked for.
func ValidVersion(s string) bool {
	_, ok := parseVersion(s)
	return ok && !strings.HasPrefix(s, "v")
}
