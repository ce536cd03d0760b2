package nvml

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Need says which GPUs an engine will use and how much of each.
type Need struct {
	// Visible is the list of CUDA_VISIBLE_DEVICES, indexes or beginnings of UUIDs; nil when it is not set.
	Visible []string
	// PCIOrder is true where CUDA counts the GPUs as the driver does (CUDA_DEVICE_ORDER=PCI_BUS_ID). Without it the order is only
	// known where all GPUs are alike.
	PCIOrder bool
	// Count is how many GPUs the engine uses, at least 1.
	Count int
	// Fraction of each GPU's whole memory, 0 to 1, that must be free; 0 when not known.
	Fraction float64
}

// Outcome names what was found about memory.
type Outcome string

const (
	// Unknown: nothing can be said, and Text says why. It never keeps an engine from being launched.
	Unknown Outcome = "unknown"
	// Enough: what is free is stable, and as much as needed where that is known.
	Enough Outcome = "enough"
	// Short: less is free than needed.
	Short Outcome = "short"
	// Restless: enough is free, but it has not been the same for long enough.
	Restless Outcome = "restless"
	// Returned: what was free before the launch is free again.
	Returned Outcome = "returned"
	// Taken: the engine's memory is back, and others have taken of it meanwhile.
	Taken Outcome = "taken"
	// Held: memory is missing that no other process accounts for.
	Held Outcome = "held"
)

// Memory bounds.
const (
	// calmReadings of the same free memory in a row make it stable.
	calmReadings = 3
	// sameWithin is how far two readings may be apart and still count as the same: a desktop moves a little all the time.
	sameWithin = 64 << 20
	// notMissed is what the driver may keep for itself after an engine has gone, in bytes, or keptPart of the whole if that is more.
	notMissed = 256 << 20
	keptPart  = 0.01
	// lookEvery is the pause between polls while somebody waits.
	lookEvery = 500 * time.Millisecond
)

// Finding is an outcome with its words.
type Finding struct {
	Outcome Outcome
	// Text says it for people: device, bytes, limit, and who holds them.
	Text string
	// Readings is how many polls it took.
	Readings int
}

// AwaitFree waits until the memory that an engine needs is free and stable, nothing can be said about it, or ctx ends; then it
// tells what was found last. tell, which may be nil, gets each new finding that is not the end. What is free at the end is
// what AwaitReturned compares with. Run must be running.
func (m *Monitor) AwaitFree(ctx context.Context, need Need, tell func(Finding)) Finding {
	j := launchJudge{need: need}
	f := m.await(ctx, func(r *Reading) (Finding, bool) {
		f := j.see(r)
		return f, f.Outcome == Enough || f.Outcome == Unknown && r.State != Hung
	}, tell)
	m.mu.Lock()
	m.before, m.ours = m.Reading(), map[int]bool{}
	m.mu.Unlock()
	return f
}

// AwaitReturned waits until the memory of an engine that has gone is free again, nothing can be said, or ctx ends; then it
// tells what was found last.
func (m *Monitor) AwaitReturned(ctx context.Context, tell func(Finding)) Finding {
	m.mu.Lock()
	before := m.before
	ours := make(map[int]bool, len(m.ours))
	for pid := range m.ours {
		ours[pid] = true
	}
	m.mu.Unlock()
	return m.await(ctx, func(r *Reading) (Finding, bool) {
		f := judgeReturn(before, r, ours)
		return f, f.Outcome != Held && r.State != Hung
	}, tell)
}

// await judges one new reading after the other until judge is done or ctx ends.
func (m *Monitor) await(ctx context.Context, judge func(*Reading) (Finding, bool), tell func(Finding)) Finding {
	began := time.Now()
	f := Finding{Outcome: Unknown, Text: "the GPUs have not been read yet"}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	var seen time.Time
	for readings := 0; ; {
		select {
		case m.kick <- struct{}{}:
		default:
		}
		if r := m.Reading(); r.At.After(began) && !r.At.Equal(seen) || steady(r) {
			seen = r.At
			readings++
			var done bool
			f, done = judge(r)
			f.Readings = readings
			if done {
				return f
			}
			if tell != nil {
				tell(f)
			}
		}
		select {
		case <-ctx.Done():
			return f
		case <-look.C:
		}
	}
}

// steady reports whether a reading will not be made anew for some time, because the library is not there.
func steady(r *Reading) bool { return !r.At.IsZero() && r.State != OK && r.State != Hung }

// launchJudge follows free memory before a launch.
type launchJudge struct {
	need Need
	last map[string]uint64
	calm int
}

// see judges one more reading.
func (j *launchJudge) see(r *Reading) Finding {
	devices, why := choose(r, j.need)
	if why != "" {
		return Finding{Outcome: Unknown, Text: why}
	}
	free := map[string]uint64{}
	same := j.last != nil
	var short []string
	for _, d := range devices {
		if d.MemoryTotalBytes == nil || d.MemoryFreeBytes == nil {
			return Finding{Outcome: Unknown, Text: fmt.Sprintf("GPU %d does not tell its memory: %s", d.Index, d.Why)}
		}
		free[d.UUID] = *d.MemoryFreeBytes
		same = same && apart(j.last[d.UUID], *d.MemoryFreeBytes) <= sameWithin
		if need := uint64(j.need.Fraction * float64(*d.MemoryTotalBytes)); *d.MemoryFreeBytes < need {
			short = append(short, fmt.Sprintf("GPU %d has %s of %s free and the engine wants %s (%.0f %%)%s", d.Index,
				gib(*d.MemoryFreeBytes), gib(*d.MemoryTotalBytes), gib(need), 100*j.need.Fraction, heldBy(d.Processes)))
		}
	}
	if j.calm++; !same {
		j.calm = 1
		j.last = free
	}
	switch {
	case len(short) > 0:
		return Finding{Outcome: Short, Text: strings.Join(short, "; ")}
	case j.calm < calmReadings:
		return Finding{Outcome: Restless, Text: fmt.Sprintf("the free memory of the GPUs is still moving; %s free now", freeText(devices))}
	}
	return Finding{Outcome: Enough, Text: freeText(devices) + " free and stable"}
}

func apart(a, b uint64) uint64 { return max(a, b) - min(a, b) }

func gib(bytes uint64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }

func freeText(devices []Device) string {
	parts := make([]string, 0, len(devices))
	for _, d := range devices {
		parts = append(parts, fmt.Sprintf("GPU %d: %s", d.Index, gib(*d.MemoryFreeBytes)))
	}
	return strings.Join(parts, ", ")
}

// heldBy lists the processes that hold memory, largest first; "" when there is none.
func heldBy(processes []Process) string {
	list := slices.Clone(processes)
	if len(list) == 0 {
		return ""
	}
	size := func(p Process) uint64 {
		if p.UsedBytes == nil {
			return 0
		}
		return *p.UsedBytes
	}
	slices.SortStableFunc(list, func(a, b Process) int {
		switch {
		case size(a) > size(b):
			return -1
		case size(a) < size(b):
			return 1
		}
		return 0
	})
	const most = 5
	parts := []string{}
	for _, p := range list[:min(len(list), most)] {
		parts = append(parts, p.text())
	}
	if len(list) > most {
		parts = append(parts, fmt.Sprintf("%d more", len(list)-most))
	}
	return "; held by " + strings.Join(parts, ", ")
}

// text names a process for people.
func (p Process) text() string {
	out := "process " + strconv.Itoa(p.PID)
	if p.Name != "" {
		out += " (" + p.Name + ")"
	}
	if p.UsedBytes != nil {
		out += " " + gib(*p.UsedBytes)
	}
	return out
}

// choose picks the devices that an engine will use; why says what keeps them from being known.
func choose(r *Reading, need Need) (devices []Device, why string) {
	if r.State != OK {
		return nil, r.Why
	}
	count := max(need.Count, 1)
	if need.Visible == nil {
		devices = r.Devices
		if count < len(devices) && !need.PCIOrder && !alike(devices) {
			return nil, "the GPUs differ, and which ones CUDA counts first is not known (CUDA_DEVICE_ORDER is not PCI_BUS_ID)"
		}
	} else if devices, why = visible(r.Devices, need); why != "" {
		return nil, why
	}
	if len(devices) < count {
		return nil, fmt.Sprintf("the engine uses %d GPUs and %d can be seen", count, len(devices))
	}
	devices = devices[:count]
	for _, d := range devices {
		if d.State != OK {
			return nil, fmt.Sprintf("GPU %d is %s: %s", d.Index, d.State, d.Why)
		}
	}
	return devices, ""
}

// visible resolves CUDA_VISIBLE_DEVICES. As in CUDA, what follows an entry that names no GPU is not seen.
func visible(all []Device, need Need) (devices []Device, why string) {
	for _, entry := range need.Visible {
		entry = strings.TrimSpace(entry)
		if strings.HasPrefix(entry, "MIG-") {
			return nil, "the engine uses a slice of a GPU (MIG), whose memory is not read"
		}
		i := slices.IndexFunc(all, func(d Device) bool {
			return strconv.Itoa(d.Index) == entry || strings.HasPrefix(entry, "GPU-") && strings.HasPrefix(d.UUID, entry)
		})
		if i < 0 {
			break
		}
		if !strings.HasPrefix(entry, "GPU-") && !need.PCIOrder && !alike(all) {
			return nil, "the GPUs differ, and CUDA may count them in another order than the driver (CUDA_DEVICE_ORDER is not PCI_BUS_ID)"
		}
		devices = append(devices, all[i])
	}
	if len(devices) == 0 {
		return nil, "CUDA_VISIBLE_DEVICES shows the engine no GPU"
	}
	return devices, ""
}

func alike(devices []Device) bool {
	for _, d := range devices {
		if d.Name != devices[0].Name {
			return false
		}
	}
	return true
}

// judgeReturn compares a reading with the one before the launch; ours are the engine's processes of the time between.
func judgeReturn(before, now *Reading, ours map[int]bool) Finding {
	switch {
	case now.State != OK:
		return Finding{Outcome: Unknown, Text: now.Why}
	case before == nil || before.State != OK:
		return judgeListed(now, ours)
	}
	var held, taken []string
	known := false
	for _, d := range now.Devices {
		i := slices.IndexFunc(before.Devices, func(b Device) bool { return b.UUID == d.UUID })
		if i < 0 || d.MemoryFreeBytes == nil || before.Devices[i].MemoryFreeBytes == nil {
			continue
		}
		known = true
		switch text, outcome := missing(before.Devices[i], d, ours); outcome {
		case Held:
			held = append(held, text)
		case Taken:
			taken = append(taken, text)
		}
	}
	switch {
	case len(held) > 0:
		return Finding{Outcome: Held, Text: strings.Join(held, "; ")}
	case len(taken) > 0:
		return Finding{Outcome: Taken, Text: strings.Join(taken, "; ")}
	case !known:
		return Finding{Outcome: Unknown, Text: "no GPU tells its memory"}
	}
	return Finding{Outcome: Returned, Text: "the GPUs have the memory back that was free before the launch"}
}

// judgeListed is for an engine whose beginning nobody saw: all that can be told is whether its processes are still listed.
func judgeListed(now *Reading, ours map[int]bool) Finding {
	for _, d := range now.Devices {
		for _, p := range d.Processes {
			if ours[p.PID] {
				return Finding{Outcome: Held, Text: fmt.Sprintf("GPU %d still lists %s of the engine", d.Index, p.text())}
			}
		}
	}
	return Finding{Outcome: Unknown, Text: "what was free before the engine began is not known"}
}

// missing says what a GPU lacks of the memory that was free before, and who accounts for it.
func missing(before, now Device, ours map[int]bool) (text string, outcome Outcome) {
	slack := int64(notMissed)
	if now.MemoryTotalBytes != nil {
		slack = max(slack, int64(keptPart*float64(*now.MemoryTotalBytes)))
	}
	gap := int64(*before.MemoryFreeBytes) - int64(*now.MemoryFreeBytes)
	if gap <= slack {
		return "", Returned
	}
	grown, measured := int64(0), true
	still := []Process{}
	for _, p := range now.Processes {
		if ours[p.PID] {
			still = append(still, p)
			continue
		}
		was := int64(0)
		for _, b := range before.Processes {
			if b.PID == p.PID && b.UsedBytes != nil {
				was = int64(*b.UsedBytes)
			}
		}
		if p.UsedBytes == nil {
			measured = false
			continue
		}
		grown += max(0, int64(*p.UsedBytes)-was)
	}
	text = fmt.Sprintf("GPU %d has %s less free than before the launch", now.Index, gib(uint64(gap)))
	switch {
	case len(still) > 0:
		return text + heldBy(still), Held
	case gap-grown <= slack:
		return text + heldBy(now.Processes), Taken
	case !measured:
		return text + ", which may be another process: the driver does not tell how much each holds" + heldBy(now.Processes), Taken
	}
	return text + fmt.Sprintf(", and no process accounts for %s of it", gib(uint64(gap-grown))), Held
}
