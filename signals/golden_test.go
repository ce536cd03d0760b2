package signals

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// epoch is the time that the "at" of the golden files counts from.
var epoch = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// TestF40_PagesBecomeSnapshots runs the scripts under testdata/golden. Their commands are:
//
//	scrape at=1s [load=3] [file=NAME] [openmetrics] [cut] [only=(running,waiting)]
//	       one page, from a file or inline; cut leaves out the last line end
//	orca at=1s     a load report beside an answer, as the header has it
//	fail   a scrape that got no answer
//	reset  the engine was replaced
//	show at=1s    the last snapshot as it stands at that time
func TestF40_PagesBecomeSnapshots(t *testing.T) {
	datadriven.Walk(t, "testdata/golden", func(t *testing.T, path string) {
		c := newCore(5*time.Second, 5*time.Second)
		at := epoch
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.HasArg("at") {
				at = epoch.Add(argDuration(t, d, "at"))
			}
			switch d.Cmd {
			case "new":
				c = newCore(5*time.Second, 5*time.Second)
				return ""
			case "scrape":
				c.absorb(scraped{
					body: pageOf(t, d), openMetrics: d.HasArg("openmetrics"),
					at: at, took: 4 * time.Millisecond, load: argInt(t, d, "load"),
				})
			case "orca":
				o, ok := ParseORCA(http.Header{ORCAHeader: {d.Input}})
				if !ok || c.offer(o, at) == nil {
					return "of no use\n"
				}
			case "fail":
				c.fail(errors.New("no answer"))
			case "reset":
				c.reset()
			case "show":
			default:
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			return render(c.snap, at, argList(d, "only"))
		})
	})
}

// pageOf returns the page that a scrape command means.
func pageOf(t *testing.T, d *datadriven.TestData) []byte {
	if d.HasArg("file") {
		var name string
		d.ScanArgs(t, "file", &name)
		body, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		return body
	}
	if d.HasArg("cut") {
		return []byte(d.Input)
	}
	return []byte(d.Input + "\n")
}

func argDuration(t *testing.T, d *datadriven.TestData, key string) time.Duration {
	var text string
	d.ScanArgs(t, key, &text)
	v, err := time.ParseDuration(text)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return v
}

func argInt(t *testing.T, d *datadriven.TestData, key string) int {
	v := 0
	d.MaybeScanArgs(t, key, &v)
	return v
}

func argList(d *datadriven.TestData, key string) []string {
	for _, a := range d.CmdArgs {
		if a.Key == key {
			return a.Vals
		}
	}
	return nil
}

// render is a snapshot for people, with the signals named in only, or all.
func render(s *Snapshot, now time.Time, only []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "scrape %d, life %d, engine %q, failures %d", s.Seq, s.Life, s.Engine, s.Failures)
	if s.Err != "" {
		fmt.Fprintf(&b, ": %s", s.Err)
	}
	b.WriteByte('\n')
	if s.LifeWhy != "" {
		fmt.Fprintf(&b, "another engine: %s\n", s.LifeWhy)
	}
	for _, c := range s.Conditions {
		fmt.Fprintf(&b, "%s: %s\n", c.Code, c.Text)
	}
	for _, sig := range s.All(now) {
		if only != nil && !slices.Contains(only, string(sig.Name)) {
			continue
		}
		value := "-"
		if sig.Present() {
			value = fmt.Sprintf("%.6g %s", sig.Value, sig.Unit)
		}
		fmt.Fprintf(&b, "%-19s %-19s %-7s", sig.Name, value, sig.State)
		if sig.Present() {
			fmt.Fprintf(&b, " age %s", sig.Age(now))
		}
		if sig.Why != "" {
			fmt.Fprintf(&b, " (%s)", sig.Why)
		}
		fmt.Fprintf(&b, " from %s\n", sig.Source)
	}
	return b.String()
}
