package install

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Error is a step of an install that failed, in words.
type Error struct {
	// Step is what was being done, What went wrong, Fix what to do about it.
	Step, What, Fix string
	// Log is the file with the whole output, "" when there is none.
	Log string
	// Precondition is true when nothing was tried, because something on the machine is missing.
	Precondition bool
	// Err is the cause, which may be nil.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	s := e.Step + ": " + e.What
	if e.Fix != "" {
		s += "; " + e.Fix
	}
	if e.Log != "" {
		s += " (whole output: " + e.Log + ")"
	}
	return s
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

const (
	resumes = "the same command then goes on where it was"
	network = "check the network, the proxy variables and pip's configuration (pip config list); " + resumes
)

// trouble is a failure that the words of pip and Python give away.
type trouble struct{ word, what, fix string }

// troubles returns what is looked for, the most telling first: one failure often prints several of these.
func troubles() []trouble {
	return []trouble{
		{"No space left on device", "the disk is full", "make room (df -h), " + resumes},
		{"Disk quota exceeded", "this user's disk quota is used up", "make room (quota -s), " + resumes},
		{"CERTIFICATE_VERIFY_FAILED", "the registry's certificate is not trusted", "name the certificates with PIP_CERT or `pip config set global.cert FILE`"},
		{"Temporary failure in name resolution", "the registry's name cannot be resolved", network},
		{"Name or service not known", "the registry's name cannot be resolved", network},
		{"nodename nor servname provided", "the registry's name cannot be resolved", network},
		{"ProxyError", "the proxy does not answer or refuses", "look at HTTPS_PROXY; " + resumes},
		{"407 Proxy Authentication", "the proxy wants a password", "put it into HTTPS_PROXY; " + resumes},
		{"Connection refused", "the registry refuses connections", network},
		{"Network is unreachable", "the network is unreachable", network},
		{"No route to host", "there is no route to the registry", network},
		{"Read timed out", "the registry does not send", network},
		{"ReadTimeoutError", "the registry does not send", network},
		{"ConnectTimeoutError", "the registry does not answer", network},
		{"timed out", "the registry does not answer in time", network},
		{"IncompleteRead", "the connection broke while downloading", resumes},
		{"IncompleteDownload", "the connection broke while downloading", resumes},
		{"Connection broken", "the connection broke while downloading", resumes},
		{"Connection reset by peer", "the connection broke while downloading", resumes},
		{"RemoteDisconnected", "the connection broke while downloading", resumes},
		{"401 Client Error", "the registry wants a password", "look at pip's configuration (pip config list)"},
		{"403 Client Error", "the registry refuses access", "look at pip's configuration (pip config list)"},
		{"HTTP error 5", "the registry has a fault of its own", "try again later; " + resumes},
		{"DO NOT MATCH THE HASHES", "a downloaded file is damaged", "run the same command again; if it stays, a proxy changes files"},
		{"requires a different Python", "it does not support this version of Python", "name another interpreter with --python, for instance --python python3.12"},
		{"No matching distribution found", "the registry has no such package for this machine and Python", "check the version (--version), the interpreter (--python) and pip's configuration (pip config list)"},
		{"ResolutionImpossible", "its requirements contradict each other", "another version may do: --version"},
		{"externally-managed-environment", "this Python refuses to be changed", "name another interpreter with --python"},
		{"error: command 'gcc' failed", "something must be compiled and that failed", "install a C compiler: apt-get install build-essential"},
		{"error: command 'cc' failed", "something must be compiled and that failed", "install a C compiler: apt-get install build-essential"},
		{"Killed", "it was killed, most often for lack of memory", "look at the kernel's log: dmesg | tail"},
	}
}

// explain turns a program's last lines into words.
func explain(lines []string) (what, fix string) {
	text := strings.Join(lines, "\n")
	for _, t := range troubles() {
		if strings.Contains(text, t.word) {
			return t.what, t.fix
		}
	}
	for _, line := range slices.Backward(lines) {
		if l := strings.TrimSpace(line); l != "" && !strings.HasPrefix(l, "Progress ") {
			return "the last line was: " + tame(l), ""
		}
	}
	return "it ended without a word", ""
}

// addressPattern is anything with a host in it: it may hold a password, and says where packages come from.
var addressPattern = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://\S+`)

// tame cuts a foreign line to what may be shown.
func tame(line string) string {
	line = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, addressPattern.ReplaceAllString(line, "(address)"))
	if r := []rune(line); len(r) > 200 {
		return string(r[:200]) + "..."
	}
	return line
}
