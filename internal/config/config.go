// Package config is admitd's one configuration file: its structure, defaults, checks and reload classes.
//
// Goal: every key optional, every mistake with a place, every setting classed by what it takes to change it.
//
// Non-goals: the policy (its own file, package gate/policy), reading flags (cmd/admitd does, over Apply).
//
// Invariants: Load returns a complete, valid Config or an error, never something half-read; the doc tag of a
// field is its reference text (docs/configuration.md and the JSON Schema are generated from it).
package config

import (
	"time"

	"admitd/gate/reason"
	"admitd/internal/strict"
)

// Config is the whole file. Fields are read-only after Load.
//
// Tags: yaml is the key; doc its reference text; reload is hot, or process (needs a restart of admitd); show marks text whose
// value may be printed where settings are compared: the values of other texts, lists and maps never are, for they may hold
// secrets.
type Config struct {
	Listen         string              `yaml:"listen" doc:"Address of the model API: host:port, or unix:/path. A socket named gate that systemd hands down takes its place." show:"yes" reload:"process"`
	ListenMode     string              `yaml:"listen_mode" doc:"Mode of the model API's unix socket, in octal." show:"yes" reload:"process"`
	TLS            TLS                 `yaml:"tls" doc:"TLS of the model API's listener; without cert and key it is plain HTTP."`
	CORS           CORS                `yaml:"cors" doc:"Which web pages may call the model API from a browser."`
	Admin          Admin               `yaml:"admin" doc:"Admin listener: dashboard, metrics, admin API."`
	Model          string              `yaml:"model" doc:"Model to serve: a short name of configs/models.yaml, or anything the engine takes (hub name, folder)." show:"yes" reload:"process"`
	ModelName      string              `yaml:"model_name" doc:"Name that callers use for the model; empty means model itself." show:"yes" reload:"process"`
	Aliases        []string            `yaml:"aliases" doc:"Further names that callers may use for the model." reload:"process"`
	Engine         Engine              `yaml:"engine" doc:"The engine and how it is supervised."`
	PolicyFile     string              `yaml:"policy_file" doc:"Policy file; empty means the built-in default policy." show:"yes" reload:"process"`
	AllowAnonymous bool                `yaml:"allow_anonymous" doc:"Serve callers without a key even on an address that others can reach." reload:"process"`
	Keys           []Key               `yaml:"keys" doc:"Keys of callers; none means that everybody who can reach the listener may call." reload:"process"`
	Classes        map[string]SLO      `yaml:"classes" doc:"SLO classes by name." reload:"process"`
	DefaultClass   string              `yaml:"default_class" doc:"Class of callers that have no other." show:"yes" reload:"process"`
	Limits         Limits              `yaml:"limits" doc:"Limits of the model API's listener."`
	Relay          Relay               `yaml:"relay" doc:"How requests and responses pass through."`
	RefuseCodes    map[reason.Code]int `yaml:"refuse_codes" doc:"HTTP status by reason word, where the default of docs/reasons.md is not wanted." reload:"process"`
	Signals        Signals             `yaml:"signals" doc:"Reading the engine's metrics."`
	GPU            GPU                 `yaml:"gpu" doc:"Reading the GPU through NVML."`
	Journal        Journal             `yaml:"journal" doc:"The decision record."`
	Upgrade        Upgrade             `yaml:"upgrade" doc:"Replacing the running admitd by a new binary (admitd upgrade)."`
	StateDir       string              `yaml:"state_dir" doc:"Folder for what admitd remembers: engine record, phase times, admin token, last good policy. Empty means $XDG_STATE_HOME/admitd." show:"yes" reload:"process"`
	DataDir        string              `yaml:"data_dir" doc:"Folder for engines that admitd engine install puts there. Empty means $XDG_DATA_HOME/admitd." show:"yes" reload:"process"`
	Log            Log                 `yaml:"log" doc:"admitd's own log, on standard error."`
}

// Admin configures the admin listener.
type Admin struct {
	Listen       string   `yaml:"listen" doc:"Address of the admin listener: host:port, or unix:/path. A socket named admin that systemd hands down takes its place." show:"yes" reload:"process"`
	ListenMode   string   `yaml:"listen_mode" doc:"Mode of the admin listener's unix socket, in octal: whoever may open it may read what the dashboard shows." show:"yes" reload:"process"`
	TokenFile    string   `yaml:"token_file" doc:"File with the admin token; empty means admin.token in the state folder, made at start." reload:"process"`
	AllowedHosts []string `yaml:"allowed_hosts" doc:"Host names, beside loopback and the listener's own, under which the dashboard may be opened." reload:"process"`
}

// TLS names the PEM files of a listener. They are read again when they change.
type TLS struct {
	Cert     string `yaml:"cert" doc:"File with the certificate and its chain, PEM." show:"yes" reload:"process"`
	Key      string `yaml:"key" doc:"File with the certificate's key, PEM." show:"yes" reload:"process"`
	ClientCA string `yaml:"client_ca" doc:"File with CAs, PEM: callers then need a certificate that one of them signed. Keys are asked for all the same." show:"yes" reload:"process"`
}

// CORS opens the model API to web pages.
type CORS struct {
	Origins []string `yaml:"origins" doc:"Origins of those pages, such as https://chat.example, exactly, or * for all; none means that browsers keep every page away." reload:"process"`
}

// Upgrade bounds the steps of an upgrade.
type Upgrade struct {
	Timeout      time.Duration `yaml:"timeout" doc:"Longest time for the new admitd to be ready; after it the old one goes on alone." reload:"process"`
	DrainTimeout time.Duration `yaml:"drain_timeout" doc:"How long the old admitd may go on with its open streams after the new one has taken over." reload:"process"`
}

// Engine configures the engine process.
type Engine struct {
	Kind         string        `yaml:"kind" doc:"auto, vllm, sglang, sim or external." show:"yes" reload:"process"`
	URL          string        `yaml:"url" doc:"Base URL of an external engine, for instance http://127.0.0.1:8000." reload:"process"`
	KeyEnv       string        `yaml:"key_env" doc:"Environment variable that holds an external engine's own API key." reload:"process"`
	Binary       string        `yaml:"binary" doc:"Path of the engine's program; empty means as found: one that admitd engine install put there, else on PATH." show:"yes" reload:"process"`
	Version      string        `yaml:"version" doc:"Run the installed engine of this version (admitd engine list); empty means the newest, else the one on PATH." show:"yes" reload:"process"`
	Args         []string      `yaml:"args" doc:"Arguments for the engine; they win over admitd's own. On the command line: after --." reload:"process"`
	Port         int           `yaml:"port" doc:"Let vLLM listen on this loopback port instead of a unix socket; 0 means the socket." reload:"process"`
	Slots        int           `yaml:"slots" doc:"Requests that the engine runs at once; 0 means as its arguments say, else learnt." reload:"process"`
	StartTimeout time.Duration `yaml:"start_timeout" doc:"Longest time from launch to ready." reload:"process"`
	DrainTimeout time.Duration `yaml:"drain_timeout" doc:"How long open streams may go on before the engine is told to stop." reload:"process"`
	StopGrace    time.Duration `yaml:"stop_grace" doc:"How long the engine may take to stop before it is killed." reload:"process"`
	StallAfter   time.Duration `yaml:"stall_after" doc:"Work without any token for this long means stalled; as long again, and the engine is restarted." reload:"process"`
	ProbeAfter   time.Duration `yaml:"probe_after" doc:"An engine with nothing to do that has brought out no token for this long is asked for one, so that a frozen one is found; 0 means never." reload:"process"`
	MaxRestarts  int           `yaml:"max_restarts" doc:"Restarts within restart_window before admitd gives up." reload:"process"`
	Window       time.Duration `yaml:"restart_window" doc:"Window for max_restarts." reload:"process"`
}

// Key is one caller's key. The key itself is never stored, only its hash.
type Key struct {
	ID             string    `yaml:"id" doc:"Name of the key in logs and records." reload:"process"`
	SHA256         string    `yaml:"sha256" doc:"SHA-256 of the key in hex: printf %s KEY | sha256sum." reload:"process"`
	Tenant         string    `yaml:"tenant" doc:"Who the key belongs to; empty means its id." reload:"process"`
	Models         []string  `yaml:"models" doc:"Models it may use; none means all." reload:"process"`
	Class          string    `yaml:"class" doc:"Its class; empty means default_class." reload:"process"`
	MayChooseClass bool      `yaml:"may_choose_class" doc:"Whether X-Admitd-Class is obeyed." reload:"process"`
	Expires        time.Time `yaml:"expires" doc:"When it stops working: a time such as 2026-12-31T00:00:00Z, or a date, which begins at 0:00 UTC; without the key, never." reload:"process"`
}

// SLO is what a class promises. Zero means no limit of that kind.
type SLO struct {
	TTFT time.Duration `yaml:"ttft" doc:"Longest time to the first token." reload:"process"`
	TPOT time.Duration `yaml:"tpot" doc:"Longest mean time between tokens." reload:"process"`
}

// Limits bounds the listener.
type Limits struct {
	MaxBody           Bytes         `yaml:"max_body" doc:"Largest request body." reload:"process"`
	MaxBuffered       Bytes         `yaml:"max_buffered" doc:"Most bytes of request bodies held at once, over all callers." reload:"process"`
	MaxHeader         Bytes         `yaml:"max_header" doc:"Largest request header." reload:"process"`
	HeaderTimeout     time.Duration `yaml:"header_timeout" doc:"Longest time for a caller to send its header." reload:"process"`
	BodyTimeout       time.Duration `yaml:"body_timeout" doc:"Longest time for a caller to send its body." reload:"process"`
	IdleTimeout       time.Duration `yaml:"idle_timeout" doc:"How long an idle connection is kept." reload:"process"`
	HelperConcurrency int           `yaml:"helper_concurrency" doc:"Helper calls such as /tokenize at the engine at once." reload:"process"`
}

// Relay configures what happens to bytes on their way.
type Relay struct {
	FirstEventWait time.Duration `yaml:"first_event_wait" doc:"How long a stream's status waits for its first event, so that a full engine's in-stream refusal becomes a real 503." reload:"process"`
	KeepAlive      time.Duration `yaml:"keep_alive" doc:"Send SSE comments on streams that are silent for this long; 0 means never, which keeps the relay byte-identical." reload:"process"`
	WriteStall     time.Duration `yaml:"write_stall" doc:"How long a caller may read nothing of its answer before it counts as gone; 0 means for ever." reload:"process"`
	ResponseModel  string        `yaml:"response_model" doc:"Model name in responses: asked (what the caller wrote) or engine." show:"yes" reload:"process"`
	OpenPaths      []OpenPath    `yaml:"open_paths" doc:"Engine paths to open that are blocked by default." reload:"process"`
}

// OpenPath opens one blocked path.
type OpenPath struct {
	Path  string `yaml:"path" doc:"The path, exactly." reload:"process"`
	Class string `yaml:"class" doc:"inference or helper." reload:"process"`
}

// Signals configures scraping.
type Signals struct {
	MinInterval time.Duration `yaml:"min_interval" doc:"Shortest time between scrapes, used while requests are in flight." reload:"process"`
	MaxInterval time.Duration `yaml:"max_interval" doc:"Longest time between scrapes, used when idle." reload:"process"`
	StaleAfter  time.Duration `yaml:"stale_after" doc:"Age from which a reading counts as stale." reload:"process"`
	Timeout     time.Duration `yaml:"timeout" doc:"Longest time for one scrape." reload:"process"`
}

// GPU configures NVML.
type GPU struct {
	Disabled bool          `yaml:"disabled" doc:"Do not use NVML." reload:"process"`
	Interval time.Duration `yaml:"interval" doc:"Time between readings." reload:"process"`
}

// Journal configures the decision record.
type Journal struct {
	Ring      int           `yaml:"ring" doc:"Entries kept in memory, 100 to 1000000; each takes up to about 4 KiB." reload:"process"`
	Dir       string        `yaml:"dir" doc:"Folder for the record on disk (JSON Lines), inside state_dir unless it is absolute; empty means memory only, which a crash loses." show:"yes" reload:"process"`
	MaxBytes  Bytes         `yaml:"max_bytes" doc:"Size at which a file of the record is rotated." reload:"process"`
	MaxAge    time.Duration `yaml:"max_age" doc:"Age at which a file of the record is rotated; 0 means never." reload:"process"`
	KeepBytes Bytes         `yaml:"keep_bytes" doc:"How much of the record is kept on disk; the oldest files beyond it are removed." reload:"process"`
	KeepAge   time.Duration `yaml:"keep_age" doc:"How long a file of the record is kept after its last line; 0 means without limit." reload:"process"`
}

// Log configures admitd's log.
type Log struct {
	Level  string `yaml:"level" doc:"debug, info, warn or error." show:"yes" reload:"hot"`
	Format string `yaml:"format" doc:"text or json." show:"yes" reload:"process"`
}

// ServedName is the name that callers use for the model.
func (c Config) ServedName() string {
	if c.ModelName != "" {
		return c.ModelName
	}
	return c.Model
}

// Default returns the configuration of an empty file.
func Default() Config {
	return Config{
		Listen: "127.0.0.1:8080", ListenMode: "0660",
		Admin:   Admin{Listen: "127.0.0.1:8081", ListenMode: "0600"},
		Upgrade: Upgrade{Timeout: 2 * time.Minute, DrainTimeout: time.Hour},
		Engine: Engine{Kind: "auto", StartTimeout: 30 * time.Minute, DrainTimeout: 30 * time.Second, StopGrace: 30 * time.Second,
			StallAfter: 60 * time.Second, ProbeAfter: 5 * time.Minute, MaxRestarts: 5, Window: 10 * time.Minute},
		Classes: map[string]SLO{
			"interactive": {TTFT: 2 * time.Second, TPOT: 100 * time.Millisecond},
			"batch":       {TTFT: 60 * time.Second, TPOT: time.Second},
		},
		DefaultClass: "interactive",
		Limits: Limits{MaxBody: 32 << 20, MaxBuffered: 256 << 20, MaxHeader: 64 << 10, HeaderTimeout: 10 * time.Second,
			BodyTimeout: 60 * time.Second, IdleTimeout: 120 * time.Second, HelperConcurrency: 8},
		Relay:   Relay{FirstEventWait: 10 * time.Second, WriteStall: 60 * time.Second, ResponseModel: "asked"},
		Signals: Signals{MinInterval: 100 * time.Millisecond, MaxInterval: time.Second, StaleAfter: 3 * time.Second, Timeout: 2 * time.Second},
		GPU:     GPU{Interval: time.Second},
		Journal: Journal{Ring: 20000, Dir: "journal", MaxBytes: 32 << 20, MaxAge: 24 * time.Hour, KeepBytes: 512 << 20, KeepAge: 30 * 24 * time.Hour},
		Log:     Log{Level: "info", Format: "text"},
	}
}

// Over is what flags and environment lay over the file. The zero value changes nothing.
type Over struct {
	// Apply changes the configuration that the file gave.
	Apply func(*Config)
	// Origin names the flag or variable that set a key, such as --listen or ADMITD_LISTEN; "" when the file or the default did.
	Origin func(key string) string
}

// Load reads a file, lets over change what flags and environment say, and checks the whole. An empty name gives the
// defaults; over may be nil. Errors are *strict.Error.
func Load(file string, over func(*Config)) (Config, error) {
	return LoadOver(file, Over{Apply: over})
}

// LoadOver is Load whose complaints about what flags and environment set name those, not the file.
func LoadOver(file string, over Over) (Config, error) {
	var src []byte
	if file != "" {
		var err error
		if src, err = strict.ReadFile("configuration", file); err != nil {
			return Config{}, err
		}
	}
	return parse(file, src, over)
}

// Parse is Load for a text that has been read already.
func Parse(file string, src []byte, over func(*Config)) (Config, error) {
	return parse(file, src, Over{Apply: over})
}

func parse(file string, src []byte, over Over) (Config, error) {
	c := Default()
	if err := strict.Decode(file, src, &c); err != nil {
		return Config{}, err
	}
	if over.Apply != nil {
		over.Apply(&c)
	}
	if err := c.check(&checker{file: file, src: src, origin: over.Origin}); err != nil {
		return Config{}, err
	}
	return c, nil
}
