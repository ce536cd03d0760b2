package client

import (
	"time"

	"admitd/gate/reason"
	"admitd/ui/api"
)

// DecisionRow is one decision of a frame, its cells named. A pointer is nil, and a duration 0, when not known.
type DecisionRow struct {
	ID                                         string
	At                                         time.Time
	Verdict                                    string
	Reason                                     reason.Code
	Status                                     int
	Tenant, Class, Session                     string
	Attempt                                    int
	PromptTokens, OutputTokens, ReservedTokens int
	RetryAfter, Held                           time.Duration
	KVUsed, Waiting                            *float64
}

// OutcomeRow is one outcome of a frame.
type OutcomeRow struct {
	ID, Ending                     string
	Status                         int
	TTFTMS, TPOTMS, TotalMS        *float64
	PromptTokens, CompletionTokens *float64
	SLOMet                         bool
}

type cells struct {
	fields []string
	row    []any
}

func (c cells) at(name string) any {
	for i, f := range c.fields {
		if f == name && i < len(c.row) {
			return c.row[i]
		}
	}
	return nil
}

func (c cells) text(name string) string { s, _ := c.at(name).(string); return s }

func (c cells) number(name string) *float64 {
	if v, ok := c.at(name).(float64); ok {
		return &v
	}
	return nil
}

func (c cells) whole(name string) int {
	if v := c.number(name); v != nil {
		return int(*v)
	}
	return 0
}

// Decisions reads the decisions of a frame by the field names of this stream's hello.
func (s *Stream) Decisions(f *api.Frame) []DecisionRow {
	out := make([]DecisionRow, 0, len(f.D))
	at := time.UnixMilli(f.T)
	for _, row := range f.D {
		c := cells{s.decisionFields, row}
		r := DecisionRow{
			ID: c.text("id"), At: at.Add(-time.Duration(c.whole("t")) * time.Millisecond), Status: c.whole("status"),
			Tenant: s.Word(c.at("tenant")), Class: s.Word(c.at("class")), Session: c.text("session"),
			Attempt: c.whole("attempt"), PromptTokens: c.whole("prompt_tokens"), OutputTokens: c.whole("output_tokens"),
			ReservedTokens: c.whole("reserved_tokens"), RetryAfter: time.Duration(c.whole("retry_after_ms")) * time.Millisecond,
			Held: time.Duration(c.whole("held_ms")) * time.Millisecond, KVUsed: c.number("kv_used"), Waiting: c.number("waiting"),
		}
		if i, ok := index(c.at("verdict"), len(s.verdicts)); ok {
			r.Verdict = s.verdicts[i]
		}
		if i, ok := index(c.at("reason"), len(s.reasons)); ok {
			r.Reason = s.reasons[i].Code
		}
		out = append(out, r)
	}
	return out
}

// Outcomes reads the outcomes of a frame.
func (s *Stream) Outcomes(f *api.Frame) []OutcomeRow {
	out := make([]OutcomeRow, 0, len(f.O))
	for _, row := range f.O {
		c := cells{s.outcomeFields, row}
		out = append(out, OutcomeRow{
			ID: c.text("id"), Ending: s.Word(c.at("ending")), Status: c.whole("status"), TTFTMS: c.number("ttft_ms"),
			TPOTMS: c.number("tpot_ms"), TotalMS: c.number("total_ms"), PromptTokens: c.number("prompt_tokens"),
			CompletionTokens: c.number("completion_tokens"), SLOMet: c.whole("slo_met") == 1,
		})
	}
	return out
}
