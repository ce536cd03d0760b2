package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Bytes is a size in bytes; in the file a number, or a number with KiB, MiB or GiB.
type Bytes int64

// UnmarshalYAML reads "32MiB", "65536" or 65536. Errors name the value.
func (b *Bytes) UnmarshalYAML(text []byte) error {
	s := strings.Trim(strings.TrimSpace(string(text)), `"'`)
	num, unit := s, int64(1)
	for suffix, u := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if n, ok := strings.CutSuffix(s, suffix); ok {
			num, unit = strings.TrimSpace(n), u
		}
	}
	n, err := strconv.ParseInt(num, 10, 64)
	if err != nil || n < 0 || n > (1<<50)/unit {
		return fmt.Errorf("%q is not a size such as 32MiB", s)
	}
	*b = Bytes(n * unit)
	return nil
}

// MarshalYAML writes the size as String does.
func (b Bytes) MarshalYAML() ([]byte, error) { return []byte(b.String()), nil }

// String gives the size in the largest unit that divides it.
func (b Bytes) String() string {
	for _, u := range []struct {
		size Bytes
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if b >= u.size && b%u.size == 0 {
			return strconv.FormatInt(int64(b/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}
