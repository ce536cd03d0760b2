package install

import (
	"archive/zip"
	"bufio"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
)

// longestMetadata bounds what is read of a package's metadata, in bytes.
const longestMetadata = 4 << 20

// localPin is an exact version with a local part, which names a build that only its makers' own index has.
var localPin = regexp.MustCompile(`(===?\s*[0-9][A-Za-z0-9._!-]*)\+[A-Za-z0-9._-]+`)

// wheelNeeds reads the version of a wheel and what it needs, local parts of exact versions left out. Needs of optional
// extras are left out as well.
func wheelNeeds(file string) (version string, needs []string, err error) {
	z, err := zip.OpenReader(file)
	if err != nil {
		return "", nil, fmt.Errorf("open %s: %w", file, err)
	}
	defer func() { _ = z.Close() }()
	for _, f := range z.File {
		if dir, name := path.Split(f.Name); name != "METADATA" || !strings.HasSuffix(dir, ".dist-info/") || strings.Count(dir, "/") != 1 {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return "", nil, fmt.Errorf("read %s: %w", file, err)
		}
		defer func() { _ = r.Close() }()
		version, needs = parseMetadata(io.LimitReader(r, longestMetadata))
		if version == "" {
			return "", nil, fmt.Errorf("%s does not say its version", file)
		}
		return version, needs, nil
	}
	return "", nil, fmt.Errorf("%s has no metadata", file)
}

// parseMetadata reads the header of a METADATA file (core metadata specification): it ends at the first empty line.
func parseMetadata(r io.Reader) (version string, needs []string) {
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, longestMetadata)
	for sc.Scan() && strings.TrimSpace(sc.Text()) != "" {
		name, value, _ := strings.Cut(sc.Text(), ":")
		value = strings.TrimSpace(value)
		switch strings.ToLower(name) {
		case "version":
			version = value
		case "requires-dist":
			if _, marker, _ := strings.Cut(value, ";"); !strings.Contains(strings.ReplaceAll(marker, " ", ""), "extra==") {
				needs = append(needs, localPin.ReplaceAllString(value, "$1"))
			}
		}
	}
	return version, needs
}
