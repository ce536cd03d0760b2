package sim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// StartError means that a fault made starting fail; the process is to exit with status 1.
type StartError struct{ Fault Fault }

// Error implements error.
func (e *StartError) Error() string {
	return fmt.Sprintf("starting failed as the fault %s asks", e.Fault)
}

// slowStartDefault is how much longer slow-start loads when it is given no duration.
const slowStartDefault = 30 * time.Second

// phase is a part of starting: its lines are printed, then its share of the load time passes.
type phase struct {
	share float64
	lines []string
	// core is true for lines that the engine's core process prints.
	core bool
}

// Load prints the startup lines of the engine, spread over the load time, up to the point where it would begin to
// listen. It returns a StartError when a fault asks for that, or the context's error.
func (s *Server) Load(ctx context.Context) error {
	s.printf("*** SIMULATED ENGINE *** no model is loaded and every token is made up (%s dialect, profile %s, speed %gx)\n",
		s.opt.Dialect, s.cfg.Profile.Name, s.opt.Speed)
	if f := s.faults.names(); len(f) > 0 {
		s.printf("*** SIMULATED ENGINE *** faults asked for: %s\n", strings.Join(f, ", "))
	}
	phases := s.vllmPhases()
	if s.opt.Dialect == SGLang {
		phases = s.sglangPhases()
	}
	total := s.opt.LoadTime
	if a, ok := s.faults.asked(FaultSlowStart); ok {
		total += max(a.after, 0)
		if a.after == 0 {
			total += slowStartDefault
		}
	}
	for i, p := range phases {
		for _, line := range p.lines {
			s.engineLine(p.core, line)
		}
		if i == len(phases)/2 {
			if err := s.startFault(ctx); err != nil {
				return err
			}
		}
		if err := wait(ctx, time.Duration(float64(total)*p.share)); err != nil {
			return fmt.Errorf("stopped while loading: %w", err)
		}
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// engineLine prints one log line with the prefix of the process that would print it.
func (s *Server) engineLine(core bool, text string) {
	if s.opt.Dialect == SGLang {
		s.printf("[%s] %s\n", time.Now().Format("2006-01-02 15:04:05"), text)
		return
	}
	who := "APIServer"
	if core {
		who = "EngineCore"
	}
	level := "INFO"
	if strings.Contains(text, "Error") || strings.HasPrefix(text, "Traceback") || strings.HasPrefix(text, "  File") {
		level = "ERROR"
	}
	s.printf("(%s pid=%d) %s %s [sim.go:1] %s\n", who, os.Getpid(), level, time.Now().Format("01-02 15:04:05"), text)
}

func (s *Server) startFault(ctx context.Context) error {
	if _, ok := s.faults.asked(FaultFatalStart); ok {
		for _, l := range []string{
			"EngineCore failed to start.", "Traceback (most recent call last):",
			"ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
		} {
			s.engineLine(true, l)
		}
		s.engineLine(false, "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}")
		return &StartError{FaultFatalStart}
	}
	if s.faults.has(FaultMemoryHeld) {
		s.engineLine(true, "EngineCore failed to start.")
		s.engineLine(true, "ValueError: Free memory on device cuda:0 (3.21/79.11 GiB) on startup is less than desired GPU memory utilization (0.92, 72.78 GiB). "+
			"Decrease GPU memory utilization or reduce GPU memory used by other processes.")
		return &StartError{FaultMemoryHeld}
	}
	if _, ok := s.faults.asked(FaultHungStart); ok {
		s.engineLine(true, "EngineCore failed to start.")
		s.engineLine(true, "Traceback (most recent call last):")
		s.engineLine(true, "RuntimeError: Scheduler initialization failed")
		<-ctx.Done()
		return &StartError{FaultHungStart}
	}
	if _, ok := s.faults.asked(FaultExit1Start); ok {
		s.engineLine(true, "EngineCore failed to start.")
		s.engineLine(true, "Traceback (most recent call last):")
		s.engineLine(false, "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_DP0': 1}")
		return &StartError{FaultExit1Start}
	}
	return nil
}

func (s *Server) vllmPhases() []phase {
	c := s.cfg
	kv := c.Blocks * c.BlockTokens
	load := s.opt.LoadTime.Seconds()
	name := filepath.Base(s.opt.Model)
	return []phase{
		{share: 0.2, lines: []string{
			fmt.Sprintf("vLLM server version %s (simulated)", Version),
			fmt.Sprintf("non-default args: {'model': '%s', 'max_model_len': %d, 'max_num_seqs': %d}", s.opt.Model, c.MaxModelLen, c.MaxSeqs),
			fmt.Sprintf("Using max model len %d", c.MaxModelLen),
		}},
		{share: 0.1, core: true, lines: []string{
			fmt.Sprintf("Initializing a V1 LLM engine (v%s) with config: model='%s', max_seq_len=%d, enable_prefix_caching=%v", Version, s.opt.Model, c.MaxModelLen, !c.NoPrefixCache),
		}},
		{share: 0.3, core: true, lines: []string{
			fmt.Sprintf("Starting to load model %s...", name),
			"Loading safetensors checkpoint shards:   0% Completed | 0/1 [00:00<?, ?it/s]",
		}},
		{share: 0.2, core: true, lines: []string{
			"Loading safetensors checkpoint shards: 100% Completed | 1/1 [00:00<00:00,  1.34it/s]",
			fmt.Sprintf("Loading weights took %.2f seconds", 0.3*load),
			fmt.Sprintf("Model loading took 0.0 GiB memory and %.2f seconds", 0.3*load),
			fmt.Sprintf("Dynamo bytecode transform time: %.2f s", 0.1*load),
			fmt.Sprintf("torch.compile takes %.2f s in total", 0.2*load),
		}},
		{share: 0.15, core: true, lines: []string{
			fmt.Sprintf("Available KV cache memory: %.2f GiB", float64(kv)*12288/(1<<30)),
			fmt.Sprintf("GPU KV cache size: %s tokens", grouped(kv)),
			fmt.Sprintf("Maximum concurrency for %s tokens per request: %.2fx", grouped(c.MaxModelLen), float64(kv)/float64(c.MaxModelLen)),
			"Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):   0%|          | 0/1 [00:00<?, ?it/s]",
		}},
		{share: 0.05, core: true, lines: []string{
			fmt.Sprintf("Graph capturing finished in %.0f secs, took 0.00 GiB", 0.15*load),
			fmt.Sprintf("init engine (profile, create kv cache, warmup model) took %.2f s", 0.35*load),
		}},
	}
}

func (s *Server) sglangPhases() []phase {
	kv := s.cfg.Blocks * s.cfg.BlockTokens
	return []phase{
		{share: 0.1, lines: []string{fmt.Sprintf("server_args=ServerArgs(model_path='%s', simulated=True)", s.opt.Model)}},
		{share: 0.1, lines: []string{"Init torch distributed begin.", "Init torch distributed ends. mem usage=0.00 GB"}},
		{share: 0.4, lines: []string{"Load weight begin. avail mem=0.00 GB"}},
		{share: 0.1, lines: []string{
			fmt.Sprintf("Load weight end. type=Simulated, elapsed=%.2f s", 0.4*s.opt.LoadTime.Seconds()),
			fmt.Sprintf("KV Cache is allocated. #tokens: %d, K size: 0.00 GB, V size: 0.00 GB", kv), "Memory pool end. avail mem=0.00 GB",
		}},
		{share: 0.2, lines: []string{"Capture cuda graph begin. This can take up to several minutes."}},
		{share: 0.1, lines: []string{
			"Capture cuda graph end. Time elapsed: 0.00 s",
			fmt.Sprintf("max_total_num_tokens=%d, chunked_prefill_size=%d, max_running_requests=%d, context_len=%d", kv, s.cfg.MaxBatchedTokens, s.cfg.MaxSeqs, s.cfg.MaxModelLen),
		}},
	}
}

// listening prints the lines of the HTTP server's start; address is what people would call it.
func (s *Server) listening(address string) {
	if s.opt.Dialect == VLLM {
		s.engineLine(false, "Starting vLLM server on "+address)
		s.engineLine(false, "Available routes are:")
		for _, path := range sortedKeys(s.routes) {
			s.engineLine(false, "Route: "+path+", Methods: "+strings.Join(sortedKeys(s.routes[path]), ", "))
		}
	}
	s.printf("INFO:     Started server process [%d]\n", os.Getpid())
	s.printf("INFO:     Waiting for application startup.\n")
	s.printf("INFO:     Application startup complete.\n")
	if s.opt.Dialect == SGLang {
		s.printf("INFO:     Uvicorn running on %s (Press CTRL+C to quit)\n", address)
		s.engineLine(false, "The server is fired up and ready to roll!")
	}
}

// grouped writes 46592 as 46,592.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
