package install

import (
	"fmt"
	"strconv"
	"strings"
)

// tellFrom is the size in bytes from which a download gets a line of its own.
const tellFrom = 50e6

// downloads turns pip's lines into news.
type downloads struct {
	to   Reporter
	file string
	told bool
}

func (d *downloads) line(text string) {
	text = strings.TrimSpace(text)
	switch {
	case strings.HasPrefix(text, "Downloading "):
		// Downloading NAME (526.6 MB); some registries give a whole address.
		name, _, _ := strings.Cut(strings.TrimPrefix(text, "Downloading "), " (")
		d.file, d.told = fileName(name), false
	case strings.HasPrefix(text, "Progress "):
		d.progress(strings.TrimPrefix(text, "Progress "))
	case strings.HasPrefix(text, "Collecting "):
		what, _, _ := strings.Cut(strings.TrimPrefix(text, "Collecting "), " ")
		d.to.Doing("looking up " + tame(what))
	case strings.HasPrefix(text, "Installing collected packages: "):
		n := strings.Count(text, ",") + 1
		if n > 1 {
			d.to.Note(fmt.Sprintf("unpacking %d packages", n))
		}
		d.to.Doing(fmt.Sprintf("unpacking %d packages", n))
	}
}

// fileName is the file at an address, or what is no address as it is. An address may hold a password or a signature; what
// might be a part of one is not shown.
func fileName(address string) string {
	address, _, _ = strings.Cut(address, "?")
	name := address[strings.LastIndexByte(address, '/')+1:]
	if name == "" || strings.ContainsAny(name, ":@") {
		return "(address)"
	}
	return name
}

// progress reads "N of M", both in bytes.
func (d *downloads) progress(text string) {
	have, all, ok := strings.Cut(text, " of ")
	n, errN := strconv.ParseUint(have, 10, 64)
	m, errM := strconv.ParseUint(all, 10, 64)
	if !ok || errN != nil || errM != nil || m == 0 || n > m {
		return
	}
	name := tame(d.file)
	if m >= tellFrom && !d.told {
		d.told = true
		d.to.Note(fmt.Sprintf("downloading %s (%.0f MB)", name, float64(m)/1e6))
	}
	if n < m {
		d.to.Doing(fmt.Sprintf("downloading %s: %.0f of %.0f MB", name, float64(n)/1e6, float64(m)/1e6))
	}
}
