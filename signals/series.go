package signals

import (
	"fmt"
	"math"
	"strconv"
)

// copyLabels tell apart copies of one number that several processes of one rank export, not shares of it.
func isCopyLabel(name string) bool {
	switch name {
	case "tp_rank", "pp_rank", "moe_ep_rank", "pid", "priority":
		return true
	}
	return false
}

// shares turns the series of one family into one value for each data-parallel rank (and further label that
// splits the number), keyed by those labels. why is set when no trustworthy value can be made of them.
//
// SGLang exports one series for each scheduler process; copies within a rank are made one by taking the
// largest. With priorities on, its total stands under an empty priority and the others are parts of it.
func (f family) shares(where [2]string) (out map[string]float64, why string) {
	if f.broken != "" {
		return nil, f.broken
	}
	list := f.series
	if where[0] != "" {
		list = withLabel(list, where[0], where[1])
	}
	if len(list) == 0 {
		return nil, "declared without samples"
	}
	if list = totals(list); len(list) == 0 {
		return nil, "only parts by priority, no total"
	}
	out = map[string]float64{}
	for _, s := range list {
		if why := implausible(s.value); why != "" {
			return nil, why
		}
		key := labelKey(s.labels, isCopyLabel)
		if old, dup := out[key]; !dup || s.value > old {
			out[key] = s.value
		}
	}
	return out, ""
}

// withLabel keeps the series with the given label value.
func withLabel(list []series, name, value string) []series {
	var out []series
	for _, s := range list {
		if s.labels[name] == value {
			out = append(out, s)
		}
	}
	return out
}

// totals drops the parts of a number that is broken down by priority.
func totals(list []series) []series {
	var out []series
	for _, s := range list {
		if s.labels["priority"] == "" {
			out = append(out, s)
		}
	}
	return out
}

// implausible says why a sample cannot be a count, a size, a time or a fraction; "" when it can.
func implausible(v float64) string {
	switch {
	case math.IsNaN(v):
		return "reads NaN"
	case math.IsInf(v, 0):
		return "reads infinite"
	case v < 0:
		return "reads " + strconv.FormatFloat(v, 'g', 6, 64) + ", which is negative"
	}
	return ""
}

// combine makes one value of the ranks' shares. It needs at least one.
func combine(shares map[string]float64, how across) float64 {
	first := true
	var out float64
	for _, v := range shares {
		switch {
		case first:
			out, first = v, false
		case how == sum:
			out += v
		case how == most:
			out = math.Max(out, v)
		case how == least:
			out = math.Min(out, v)
		}
	}
	return out
}

// labelProduct multiplies the given labels of an info metric and sums over the ranks. A label that is absent or
// not a positive number ("None") makes it unusable.
func (f family) labelProduct(names []string) (float64, string) {
	if f.broken != "" {
		return 0, f.broken
	}
	if len(f.series) == 0 {
		return 0, "declared without samples"
	}
	ranks := map[string]float64{}
	for _, s := range f.series {
		product := 1.0
		for _, n := range names {
			text, ok := s.labels[n]
			if !ok {
				return 0, "has no label " + n
			}
			v, err := strconv.ParseFloat(text, 64)
			if err != nil || implausible(v) != "" || v == 0 {
				return 0, fmt.Sprintf("label %s is %.20q, not a positive number", n, text)
			}
			product *= v
		}
		rank := s.labels["engine"] + "/" + s.labels["dp_rank"]
		if old, dup := ranks[rank]; dup && old != product {
			return 0, "two series of one rank disagree"
		}
		ranks[rank] = product
	}
	return combine(ranks, sum), ""
}
