package supervisor

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// scriptEnv holds what a fake engine does, words in order.
const scriptEnv = "SUPERVISOR_TEST_SCRIPT"

// gateEnv names the file that the word wait waits for.
const gateEnv = "SUPERVISOR_TEST_GATE"

// playEngine is the main function of a fake engine process. It ends when its script does, with serve being for ever.
func playEngine(script string) (exit int) {
	for word := range strings.FieldsSeq(script) {
		switch word {
		case "bar":
			printBar(5 << 20)
		case "flood":
			printFlood(4 << 20)
		case "key":
			fmt.Println("args: {'api_key': '" + os.Getenv("VLLM_API_KEY") + "'}")
		case "lines":
			fmt.Println("(EngineCore pid=2) INFO Initializing a V1 LLM engine (v0.32.0) with config: model='m'")
			fmt.Println("(Worker pid=3) INFO Starting to load model m...")
			fmt.Println("(EngineCore pid=2) INFO CPU KV cache size: 46,592 tokens")
		case "ignoreterm":
			signal.Ignore(syscall.SIGTERM)
		case "holder":
			startHolder(false)
		case "stranger":
			startHolder(true)
		case "hold":
			term := make(chan os.Signal, 1)
			signal.Notify(term, syscall.SIGTERM)
			fmt.Println("holder", os.Getpid())
			for range term {
				fmt.Println("the holder got a SIGTERM")
			}
		case "wait":
			tick := time.NewTicker(time.Millisecond)
			for range tick.C {
				if _, err := os.Stat(os.Getenv(gateEnv)); err == nil {
					break
				}
			}
			tick.Stop()
		case "badflag":
			fmt.Fprintln(os.Stderr, "vllm: error: unrecognized arguments: --nope")
			return 2
		case "simusage":
			fmt.Fprintln(os.Stderr, "admitd: invalid value \"abc\" for flag --max-num-seqs: parse error")
			return 2
		case "panic":
			fmt.Fprintln(os.Stderr, "panic: something went wrong")
			return 2
		case "fail":
			fmt.Println("something went wrong")
			return 1
		case "quit":
			return 0
		case "serve":
			return serveFake()
		}
	}
	return 0
}

func printBar(size int) {
	const state = "\rLoading safetensors checkpoint shards:  42% Completed | 5/12 [00:13<00:11,  2.87s/it]"
	chunk := bytes.Repeat([]byte(state), 100)
	for n := 0; n < size; n += len(chunk) {
		os.Stdout.Write(chunk)
	}
}

func printFlood(size int) {
	chunk := bytes.Repeat([]byte(strings.Repeat("noise ", 20)+"\n"), 100)
	for n := 0; n < size; n += len(chunk) {
		os.Stderr.Write(chunk)
	}
}

// startHolder starts a process that tells its pid, keeps our stdout open and never ends by itself, in our session or in its own.
func startHolder(ownSession bool) {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), scriptEnv+"=hold")
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: ownSession}
	if err := c.Start(); err != nil {
		panic(err)
	}
}

// serveFake speaks as much of vLLM's HTTP as a supervisor needs, on the socket or port of its arguments. POST /die?code=N
// ends it as a crash would, POST /hang makes /health wait for ever, POST /mute keeps tokens back.
func serveFake() int {
	network, address := "unix", flagValue(os.Args, "--uds")
	if address == "" {
		network, address = "tcp", net.JoinHostPort(flagValue(os.Args, "--host"), flagValue(os.Args, "--port"))
	}
	l, err := net.Listen(network, address)
	if err != nil {
		fmt.Println("OSError:", err)
		return 1
	}
	fmt.Println("INFO:     Application startup complete.")
	quit := make(chan int, 2)
	term := make(chan os.Signal, 1)
	if !signal.Ignored(syscall.SIGTERM) {
		signal.Notify(term, syscall.SIGTERM)
	}
	go http.Serve(l, fakeHandler(quit))
	select {
	case <-term:
		return 0
	case code := <-quit:
		return code
	}
}

func fakeHandler(quit chan<- int) http.Handler {
	mux := http.NewServeMux()
	hang := make(chan struct{}, 1)
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) {
		if len(hang) > 0 {
			<-r.Context().Done()
		}
	})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"data":[{"id":%q,"max_model_len":2048}]}`, flagValue(os.Args, "--served-model-name"))
	})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"version":"0.0.0"}`) })
	mute := make(chan struct{}, 1)
	mux.HandleFunc("POST /mute", func(w http.ResponseWriter, r *http.Request) { mute <- struct{}{} })
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) {
		if len(mute) > 0 {
			<-r.Context().Done()
		}
		fmt.Fprint(w, `{"choices":[{"text":"2"}]}`)
	})
	mux.HandleFunc("POST /die", func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("about to die")
		quit <- len(r.URL.Query().Get("badly"))
	})
	mux.HandleFunc("POST /hang", func(w http.ResponseWriter, r *http.Request) { hang <- struct{}{} })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") && r.Header.Get("Authorization") != "Bearer "+os.Getenv("VLLM_API_KEY") {
			http.Error(w, `{"error":"Unauthorized"}`, http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	})
}
