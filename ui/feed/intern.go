package feed

// maxStrings bounds the interned strings: tenants, classes and endings are few, but their number is not ours to
// choose. Beyond it new ones share the index of "other".
const maxStrings = 4096

type interner struct {
	byText map[string]int
	list   []string
	// fresh is the index of the first string not yet sent with a frame.
	fresh int
}

func newInterner() interner {
	n := interner{byText: map[string]int{}}
	n.index("other")
	return n
}

func (n *interner) index(s string) int {
	if i, ok := n.byText[s]; ok {
		return i
	}
	if len(n.list) >= maxStrings {
		return 0
	}
	n.byText[s] = len(n.list)
	n.list = append(n.list, s)
	return len(n.list) - 1
}

// takeFresh returns the strings that no frame has carried yet and the index of the first of them.
func (n *interner) takeFresh() (s []string, base int) {
	if n.fresh == len(n.list) {
		return nil, 0
	}
	base = n.fresh
	s = append([]string(nil), n.list[base:]...)
	n.fresh = len(n.list)
	return s, base
}
