package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// The tables stand between these lines of the document.
const (
	beginMark = "<!-- begin bench-speed -->"
	endMark   = "<!-- end bench-speed -->"
)

// write puts the tables into the document, or prints them.
func write(ctx context.Context, s settings, r *results) error {
	text := tables(ctx, s, r)
	if s.doc == "" {
		_, err := io.WriteString(os.Stdout, text)
		return err
	}
	old, err := os.ReadFile(s.doc)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(old), beginMark)
	_, after, ok2 := strings.Cut(rest, endMark)
	if !ok || !ok2 {
		return fmt.Errorf("%s lacks the lines %q and %q", s.doc, beginMark, endMark)
	}
	return os.WriteFile(s.doc, []byte(before+beginMark+"\n"+text+endMark+after), 0o600) //nolint:gosec // the document that the caller names
}

func tables(ctx context.Context, s settings, r *results) string {
	var b strings.Builder
	fmt.Fprintf(&b, "`%s`, %s, %s, %s.\n\n", s.command, time.Now().UTC().Format(time.DateOnly), machine(), strings.Join(versions(ctx), ", "))
	if len(r.absent) > 0 {
		fmt.Fprintf(&b, "Not on this machine, so not measured: %s.\n\n", strings.Join(r.absent, ", "))
	}
	fmt.Fprintf(&b, "%d runs; the median, and lowest to highest in brackets. %d small requests over %d connections; %d streams of %d events %s apart, "+
		"%d times over. The added delay is that of events %s apart at %d streams, less the engine's own.\n\n", s.runs, s.requests, s.conns, s.streams, eventsPerStream,
		spacing, s.rounds, pacedSpacing, s.delayStreams)
	b.WriteString("| relay | CPU per small request | × nginx | CPU per event | × nginx | delay p50 | delay p99 | resident |\n|---|---|---|---|---|---|---|---|\n")
	base := r.row("nginx")
	for _, one := range r.rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %d MB |\n", one.name, micros(one.small), ratio(one.small, base, func(x *row) []time.Duration { return x.small }),
			micros(one.event), ratio(one.event, base, func(x *row) []time.Duration { return x.event }),
			added(one.p50, r.direct.p50), added(one.p99, r.direct.p99), one.resident>>20)
	}
	b.WriteString("\n")
	writeDecisions(&b, r.decide)
	writeOpen(&b, r)
	return b.String()
}

func (r *results) row(name string) *row {
	for _, one := range r.rows {
		if one.name == name {
			return one
		}
	}
	return nil
}

func writeOpen(b *strings.Builder, r *results) {
	if len(r.start) > 0 {
		fmt.Fprintf(b, "From admitd's launch to its first answer: %s ms.\n\n", millis(r.start))
	}
	if len(r.open) == 0 {
		return
	}
	fmt.Fprintf(b, "admitd's memory:\n\n| open streams | before | open | with %d callers besides that read nothing of a flood | when all have left |\n|---|---|---|---|---|\n", stalledReaders)
	for _, o := range r.open {
		fmt.Fprintf(b, "| %d | %d MB | %d MB | %d MB | %d MB |\n", o.streams, o.idle>>20, o.open>>20, o.stalled>>20, o.after>>20)
	}
	b.WriteString("\n")
}

func median(all []time.Duration) time.Duration {
	s := slices.Sorted(slices.Values(all))
	if len(s) == 0 {
		return 0
	}
	return s[len(s)/2]
}

func micros(all []time.Duration) string {
	if len(all) == 0 {
		return "–"
	}
	us := func(d time.Duration) float64 { return float64(d) / 1e3 }
	return fmt.Sprintf("%.1f µs (%.1f–%.1f)", us(median(all)), us(slices.Min(all)), us(slices.Max(all)))
}

func millis(all []time.Duration) string {
	ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
	return fmt.Sprintf("%.0f (%.0f–%.0f)", ms(median(all)), ms(slices.Min(all)), ms(slices.Max(all)))
}

// ratio is the median of each run's own ratio: what disturbs the machine disturbs both.
func ratio(all []time.Duration, base *row, of func(*row) []time.Duration) string {
	if base == nil || len(of(base)) != len(all) {
		return "–"
	}
	var each []float64
	for i, d := range all {
		if of(base)[i] > 0 {
			each = append(each, float64(d)/float64(of(base)[i]))
		}
	}
	slices.Sort(each)
	if len(each) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", each[len(each)/2])
}

// added is how much longer the median run took than the median run without a relay.
func added(with, without []time.Duration) string {
	if len(with) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f ms", float64(median(with)-median(without))/1e6)
}

func machine() string {
	model := runtime.GOARCH
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, ok := strings.Cut(string(b), "model name"); ok {
			line, _, _ := strings.Cut(rest, "\n")
			model = strings.TrimSpace(strings.TrimLeft(line, "\t :"))
		}
	}
	return fmt.Sprintf("%d cores of %s", runtime.NumCPU(), model)
}

// versions names what was measured.
func versions(ctx context.Context) []string {
	all := []string{runtime.Version()}
	for _, c := range [][]string{{"nginx", "-v"}, {"haproxy", "-v"}} {
		out, err := exec.CommandContext(ctx, c[0], c[1]).CombinedOutput()
		if line, _, _ := strings.Cut(string(out), "\n"); err == nil {
			line = strings.TrimPrefix(line, "nginx version: ")
			line, _, _ = strings.Cut(line, " - ")
			if words := strings.Fields(line); len(words) > 2 {
				line = strings.Join(words[:3], " ")
			}
			all = append(all, line)
		}
	}
	return all
}
