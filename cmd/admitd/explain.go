package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"admitd/gate/policy"
	"admitd/ui/api"
)

func (e *env) explainCommand() *cli.Command {
	return &cli.Command{
		Name: "explain", Usage: "say why one request was decided as it was", ArgsUsage: "ID",
		Description: "ID is X-Admitd-Request-Id of the response, or as `admitd tap` prints it.",
		Flags:       adminFlags(outputFlag()),
		Action: func(ctx *cli.Context) error {
			c, err := e.client(ctx)
			if err != nil {
				return err
			}
			asking, done := asking(ctx)
			defer done()
			it, err := c.Decision(asking, ctx.Args().First())
			if err != nil {
				return err
			}
			return e.output(ctx, it, func(w io.Writer) { printExplanation(w, it) })
		},
	}
}

func printExplanation(w io.Writer, it api.DecisionItem) {
	d := it.Decision
	message := d.Message
	if message == "" {
		message = it.Reason.Doc
	}
	fmt.Fprintf(w, "%s\t%s (%s): %s\n", d.ID, d.Verdict, d.Reason, message)
	fmt.Fprintf(w, "when\t%s, decided in %d µs, held %d ms\n", it.At.Local().Format(time.RFC3339Nano), d.DecideUS, d.HeldMS)
	fmt.Fprintf(w, "who\ttenant %s, class %s, session %s, attempt %d\n", d.Tenant, d.Class, orDash(d.Session), d.Attempt)
	fmt.Fprintf(w, "asked\t%s %s, stream %v, %d bytes\n", d.Path, d.Model, d.Stream, d.BodyBytes)
	fmt.Fprintf(w, "estimate\t%d prompt + %d output tokens, %d reserved\n", d.PromptTokens, d.OutputTokens, d.ReservedTokens)
	fmt.Fprintf(w, "policy\t%s@%s on scrape %d\n", d.PolicyName, d.PolicyRev, d.SnapshotSeq)
	for _, s := range d.Trace {
		fmt.Fprintf(w, "  %s\t%s%s\n", mark(s.Result), s.Text, note(s))
	}
	fmt.Fprintf(w, "ledger\tin flight %d (since the scrape %d), held %d, reserved %d tokens, slots %s\n",
		d.Ledger.InFlight, d.Ledger.Unseen, d.Ledger.Held, d.Ledger.ReservedTokens, known(d.Ledger.Slots))
	for _, s := range d.Signals {
		fmt.Fprintf(w, "  %s\t%s\n", s.Name, signalText(s))
	}
	if d.Counterfactual != "" {
		fmt.Fprintf(w, "would pass\t%s\n", d.Counterfactual)
	}
	printOutcome(w, it)
}

func printOutcome(w io.Writer, it api.DecisionItem) {
	o := it.Outcome
	switch {
	case it.Decision.Verdict != "admit":
		fmt.Fprintf(w, "answer\tstatus %d%s\n", it.Decision.Status, comeBack(it.Decision.RetryAfterMS))
	case o == nil:
		fmt.Fprintf(w, "outcome\tstill running\n")
	default:
		fmt.Fprintf(w, "outcome\t%s, status %d, TTFT %s, TPOT %s, total %.0f ms, in its SLO: %v\n", o.Ending, o.Status,
			orDashMS(o.TTFTMS), orDashMS(o.TPOTMS), o.TotalMS, o.SLOMet)
		if o.Error != "" {
			fmt.Fprintf(w, "error\t%s\n", o.Error)
		}
		fmt.Fprintf(w, "tokens\t%s prompt (%s cached), %s output\n", orDashI(o.PromptTokens), orDashI(o.CachedTokens), orDashI(o.CompletionTokens))
	}
	// Oldest first; of a long one the end says most.
	last := it.Session[max(0, len(it.Session)-sessionLines):]
	if more := len(it.Session) - len(last); more > 0 {
		fmt.Fprintf(w, "same session\t%d more before these\n", more)
	}
	for _, s := range last {
		fmt.Fprintf(w, "same session\t%s %s %s (%s), attempt %d\n", s.At.Local().Format("15:04:05.000"), s.ID, s.Verdict, s.Reason, s.Attempt)
	}
}

// sessionLines is how many other decisions of a session are shown.
const sessionLines = 5

func mark(r policy.StepResult) string {
	switch r {
	case policy.Pass:
		return "ok"
	case policy.Fail:
		return "NO"
	case policy.Unusable:
		return "??"
	default:
		return "--"
	}
}

func note(s policy.Step) string {
	if s.Note == "" {
		return ""
	}
	return " (" + s.Note + ")"
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

func orDashI(n *int) string {
	if n == nil {
		return "–"
	}
	return strconv.Itoa(*n)
}

func orDashMS(f *float64) string {
	if f == nil {
		return "–"
	}
	return fmt.Sprintf("%.0f ms", *f)
}

// comeBack is when the caller was told to try again.
func comeBack(ms int64) string {
	if ms <= 0 {
		return ", with no time to come back at"
	}
	return fmt.Sprintf(", come back in %s", (time.Duration(ms) * time.Millisecond).Round(100*time.Millisecond))
}
