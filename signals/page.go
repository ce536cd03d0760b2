package signals

import (
	"bytes"
	"errors"
	"fmt"
	"sort"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Ways in which a whole page is not usable. A page that is usable may still have broken families.
var (
	errEmpty    = errors.New("the page is empty; want metrics in text format")
	errCut      = errors.New("the page is cut short: it does not end with a line end")
	errNoEOF    = errors.New("the page is cut short: it is OpenMetrics and has no final # EOF")
	errNotAPage = errors.New("the page holds no metrics; is this the address of an engine's /metrics")
	errHTML     = errors.New("the page is HTML, not metrics; is this the address of an engine's /metrics")
)

// series is one line of a page: its labels and its value, which may be NaN.
type series struct {
	labels map[string]string
	value  float64
}

// family is all series of one wire name. With broken set, it has none.
type family struct {
	series []series
	broken string
}

// page is what was found of the wanted names. Declared ones had a TYPE or HELP line, samples or not.
type page struct {
	families map[string]family
	declared map[string]bool
}

// parsePage reads the wanted families of a page; want is as wantedNames gives it. It never panics. A family with a line that cannot be read is
// kept as broken, since a sum over the rest of it would be too small; the other families are not touched by it.
//
// Only the lines of wanted names reach expfmt, stripped of what its text parser refuses although both engines
// may send it (exemplars, OpenMetrics time stamps, a second TYPE line). Their TYPE is not needed: the table
// knows what each name means, and OpenMetrics declares a counter under another name than its samples have.
func parsePage(body []byte, openMetrics bool, want map[string]bool) (page, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return page{}, errEmpty
	}
	if err := checkWhole(body, openMetrics); err != nil {
		return page{}, err
	}
	lines, p, found := pickLines(body, want)
	if !found {
		return page{}, errNotAPage
	}
	var all []byte
	for _, l := range lines {
		all = append(all, l...)
	}
	if fams, err := parseText(all); err == nil {
		for name := range lines {
			p.families[name] = toFamily(fams[name])
		}
		return p, nil
	}
	for name, text := range lines {
		fams, err := parseText(text)
		if err != nil {
			p.families[name] = family{broken: "a line cannot be read: " + lastPart(err)}
			continue
		}
		p.families[name] = toFamily(fams[name])
	}
	return p, nil
}

// checkWhole reports whether the page looks complete to its last byte.
func checkWhole(body []byte, openMetrics bool) error {
	head := bytes.TrimSpace(body[:min(len(body), 256)])
	if len(head) > 0 && head[0] == '<' {
		return errHTML
	}
	tail := bytes.TrimRight(body, " \t\r\n")
	last := tail[bytes.LastIndexByte(tail, '\n')+1:]
	eof := string(bytes.TrimSpace(last)) == "# EOF"
	if openMetrics && !eof {
		return errNoEOF
	}
	if !eof && body[len(body)-1] != '\n' {
		return errCut
	}
	return nil
}

// pickLines collects the cleaned sample lines of the wanted names, by name, and tells whether the page had any
// sign of being a metrics page.
func pickLines(body []byte, want map[string]bool) (lines map[string][]byte, p page, found bool) {
	lines = map[string][]byte{}
	p = page{families: map[string]family{}, declared: map[string]bool{}}
	for len(body) > 0 {
		var line []byte
		if i := bytes.IndexByte(body, '\n'); i >= 0 {
			line, body = body[:i], body[i+1:]
		} else {
			line, body = body, nil
		}
		line = bytes.Trim(line, " \t\r")
		if len(line) == 0 {
			continue
		}
		if line[0] == '#' {
			if name := declaredName(line); len(name) > 0 {
				found = true
				if _, known := want[string(name)]; known {
					p.declared[string(name)] = true
				}
			}
			continue
		}
		name := sampleName(line)
		if !want[string(name)] {
			continue
		}
		found = true
		lines[string(name)] = append(append(lines[string(name)], cleanLine(line)...), '\n')
	}
	return lines, p, found
}

// declaredName returns the metric name of a TYPE or HELP comment, nil for any other comment.
func declaredName(line []byte) []byte {
	word, rest, _ := bytes.Cut(bytes.TrimLeft(line[1:], " \t"), []byte(" "))
	if string(word) != "TYPE" && string(word) != "HELP" {
		return nil
	}
	name, _, _ := bytes.Cut(bytes.TrimLeft(rest, " \t"), []byte(" "))
	return name
}

// sampleName returns the metric name of a sample line, also where it is quoted inside the braces.
func sampleName(line []byte) []byte {
	if bytes.HasPrefix(line, []byte(`{"`)) {
		name, _, _ := bytes.Cut(line[2:], []byte(`"`))
		return name
	}
	for i, c := range line {
		if c == '{' || c == ' ' || c == '\t' {
			return line[:i]
		}
	}
	return line
}

// cleanLine cuts a sample line after its value: a time stamp or an exemplar may follow. A line without closing
// brace or value is returned as it is, for the parser to refuse.
func cleanLine(line []byte) []byte {
	end := labelsEnd(line)
	if end < 0 {
		return line
	}
	rest := bytes.TrimLeft(line[end:], " \t")
	if i := bytes.IndexAny(rest, " \t"); i >= 0 {
		rest = rest[:i]
	}
	if len(rest) == 0 {
		return line
	}
	out := make([]byte, 0, end+1+len(rest))
	return append(append(append(out, line[:end]...), ' '), rest...)
}

// labelsEnd returns the offset just after a line's name and labels, -1 when the braces do not close.
func labelsEnd(line []byte) int {
	i := bytes.IndexAny(line, "{ \t")
	if i < 0 {
		return len(line)
	}
	for i < len(line) && (line[i] == ' ' || line[i] == '\t') {
		i++
	}
	if i == len(line) || line[i] != '{' {
		return i
	}
	quoted := false
	for ; i < len(line); i++ {
		switch c := line[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && c == '}':
			return i + 1
		}
	}
	return -1
}

// parseText runs expfmt over sample lines. The library has panicked on odd pages before, so a panic is an error here.
func parseText(text []byte) (fams map[string]*dto.MetricFamily, err error) {
	defer func() {
		if r := recover(); r != nil {
			fams, err = nil, fmt.Errorf("the parser panicked: %v", r)
		}
	}()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(bytes.NewReader(text))
}

// toFamily copies what is needed out of expfmt's form. Series that appear twice with one value are one; with
// two values nobody can say which is right.
func toFamily(mf *dto.MetricFamily) family {
	var f family
	seen := map[string]float64{}
	for _, m := range mf.GetMetric() {
		s := series{labels: make(map[string]string, len(m.GetLabel())), value: valueOf(m)}
		for _, l := range m.GetLabel() {
			s.labels[l.GetName()] = l.GetValue()
		}
		key := labelKey(s.labels, nil)
		if old, dup := seen[key]; dup {
			if old != s.value {
				return family{broken: "one series appears twice with different values"}
			}
			continue
		}
		seen[key] = s.value
		f.series = append(f.series, s)
	}
	return f
}

// valueOf reads a sample whatever its type is said to be.
func valueOf(m *dto.Metric) float64 {
	switch {
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Counter != nil:
		return m.Counter.GetValue()
	}
	return m.GetUntyped().GetValue()
}

// labelKey is a canonical text of labels without those that drop names.
func labelKey(labels map[string]string, drop func(string) bool) string {
	keys := make([]string, 0, len(labels))
	for k := range labels {
		if drop == nil || !drop(k) {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, "%s=%q,", k, labels[k])
	}
	return b.String()
}

// lastPart shortens the parser's message: its line number would be that of the picked lines, and it may quote a
// whole line.
func lastPart(err error) string {
	const longest = 120
	msg := err.Error()
	if pe, ok := errors.AsType[expfmt.ParseError](err); ok {
		msg = pe.Msg
	}
	if len(msg) > longest {
		msg = strings.ToValidUTF8(msg[:longest], "") + "..."
	}
	return msg
}
