// Package docs holds the documents that name faults and tests to what is there: docs/engine-bugs.md and docs/field-cases.md.
//
// Goal: every engine bug has a fault that plays it and a test that shows admitd's answer, or a stated reason; every field case a
// test or a place.
// Non-goals: links between documents (make docs-check).
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"admitd/sim"
)

// root is the repository.
const root = "../.."

// rows reads the cells of every table row of a document whose first cell matches, in order.
func rows(t *testing.T, document string, first *regexp.Regexp) [][]string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "docs", document))
	if err != nil {
		t.Fatal(err)
	}
	var out [][]string
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if first.MatchString(cells[0]) {
			out = append(out, cells)
		}
	}
	return out
}

// tests are the names of all tests of the repository: Go's functions, and the titles of those of the SDKs.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test\w+|Fuzz\w+)\(`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git" || d.Name() == ".cache"):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		b, err := os.ReadFile(path)
		for _, m := range function.FindAllStringSubmatch(string(b), -1) {
			out[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var quoted = regexp.MustCompile("`([^`]+)`")

// names are the words of a cell in backquotes.
func names(cell string) []string {
	var out []string
	for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
		out = append(out, m[1])
	}
	return out
}

// reason reports whether a cell states in words why there is nothing to name.
func reason(cell string) bool { return len(strings.Fields(cell)) >= 6 }

// wantTests fails the test when a cell names a test that is not there, or none.
func wantTests(t *testing.T, where, cell string, known map[string]bool) {
	t.Helper()
	named := 0
	for _, name := range names(cell) {
		if !strings.HasPrefix(name, "Test") && !strings.HasPrefix(name, "Fuzz") {
			continue
		}
		named++
		if !known[name] {
			t.Errorf("%s names the test %s, which is not there", where, name)
		}
	}
	if named == 0 && !reason(cell) {
		t.Errorf("%s names no test and says no reason: %q", where, cell)
	}
}

// Every engine bug has a fault and a test, and documents and faults say the same of each other.
func TestEveryEngineBugIsPlayedAndAnswered(t *testing.T) {
	const bugs = 42
	known, plays := tests(t), map[string][]string{}
	for _, f := range sim.Faults() {
		for _, n := range f.Bugs {
			plays[strconv.Itoa(n)] = append(plays[strconv.Itoa(n)], string(f.Name))
		}
	}
	var seen []string
	for _, r := range rows(t, "engine-bugs.md", regexp.MustCompile(`^\d+$`)) {
		if len(r) != 6 {
			t.Fatalf("bug %s has %d cells, not number, thread, symptom, fault, answer, test", r[0], len(r))
		}
		seen = append(seen, r[0])
		where, got, want := "bug "+r[0], names(r[3]), plays[r[0]]
		slices.Sort(got)
		slices.Sort(want)
		switch {
		case !slices.Equal(got, want):
			t.Errorf("%s: the document names the faults %v, `admitd sim --faults` %v", where, got, want)
		case len(got) == 0 && !reason(r[3]):
			t.Errorf("%s has no fault and no reason: %q", where, r[3])
		}
		wantTests(t, where, r[5], known)
	}
	for n := 1; n <= bugs; n++ {
		if slices.Index(seen, strconv.Itoa(n)) != n-1 {
			t.Errorf("bug %d is not row %d", n, n)
		}
	}
	if len(seen) != bugs {
		t.Errorf("%d rows for %d bugs", len(seen), bugs)
	}
}

// What a simulated engine must be able to do for such tests, one letter each.
func TestEveryAbilityOfTheSimulatorIsNamedAndShown(t *testing.T) {
	const abilities = "abcdefghijk"
	known, list := tests(t), []string(nil)
	for _, r := range rows(t, "engine-bugs.md", regexp.MustCompile(`^[a-z]$`)) {
		if len(r) != 4 {
			t.Fatalf("ability %s has %d cells, not letter, ability, fault, test", r[0], len(r))
		}
		list = append(list, r[0])
		for _, name := range names(r[2]) {
			if _, err := sim.ParseFault(name); err != nil {
				t.Errorf("ability %s: %v", r[0], err)
			}
		}
		if len(names(r[2])) == 0 {
			t.Errorf("ability %s names no fault", r[0])
		}
		wantTests(t, "ability "+r[0], r[3], known)
	}
	if got := strings.Join(list, ""); got != abilities {
		t.Errorf("abilities %q, want %q", got, abilities)
	}
}

// Every field case is a test by name, or has a line that says where it is handled.
func TestEveryFieldCaseIsATestOrHasItsPlace(t *testing.T) {
	known := tests(t)
	var seen []string
	for _, r := range rows(t, "field-cases.md", regexp.MustCompile(`^F\d+$`)) {
		if len(r) != 4 {
			t.Fatalf("case %s has %d cells, not case, what went wrong, what is right, test", r[0], len(r))
		}
		seen = append(seen, r[0])
		wantTests(t, "case "+r[0], r[3], known)
	}
	var want []string
	for n := 2; n <= 40; n += 2 {
		want = append(want, fmt.Sprintf("F%02d", n))
	}
	if !slices.Equal(seen, want) {
		t.Errorf("cases %v, want %v", seen, want)
	}
	// The other way round: a test that says that it is of a case is of one.
	for name := range known {
		if m := regexp.MustCompile(`^TestF(\d\d)_`).FindStringSubmatch(name); m != nil && !slices.Contains(want, "F"+m[1]) {
			t.Errorf("%s is of no case", name)
		}
	}
}
