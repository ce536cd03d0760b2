package supervisor

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMergeLetsTheOperatorWin(t *testing.T) {
	ours := [][]string{{"--uds", "/s"}, {"--shutdown-timeout", "20"}, {"--enable-prompt-tokens-details"}, {"--served-model-name", "a", "b"}}
	tests := []struct{ name, theirs, want string }{
		{"nothing said", "", "--uds /s --shutdown-timeout 20 --enable-prompt-tokens-details --served-model-name a b"},
		{"a value", "--shutdown-timeout 5", "--uds /s --enable-prompt-tokens-details --served-model-name a b --shutdown-timeout 5"},
		{"an equals sign and underscores", "--shutdown_timeout=5", "--uds /s --enable-prompt-tokens-details --served-model-name a b --shutdown_timeout=5"},
		{"switched off", "--no-enable-prompt-tokens-details", "--uds /s --shutdown-timeout 20 --served-model-name a b --no-enable-prompt-tokens-details"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := strings.Join(merge(ours, strings.Fields(tt.theirs)), " "); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestFlagValues(t *testing.T) {
	tests := []struct {
		args, flag string
		want       []string
		found      bool
	}{
		{"--port 80 --x", "--port", []string{"80"}, true},
		{"--port=80", "--port", []string{"80"}, true},
		{"--max_num_seqs 4", "--max-num-seqs", []string{"4"}, true},
		{"--port 1 --port 2", "--port", []string{"2"}, true},
		{"--served-model-name a b -tp 2", "--served-model-name", []string{"a", "b"}, true},
		{"--offset -3", "--offset", []string{"-3"}, true},
		{"--port", "--port", nil, true},
		{"--portal 3", "--port", nil, false},
		{"", "--port", nil, false},
	}
	for _, tt := range tests {
		got, found := flagValues(strings.Fields(tt.args), tt.flag)
		if d := cmp.Diff(tt.want, got); d != "" || found != tt.found {
			t.Errorf("flagValues(%q, %s) found %v, values differ (-want +got):\n%s", tt.args, tt.flag, found, d)
		}
	}
}

func TestHideBlanksSecrets(t *testing.T) {
	args := strings.Fields("serve m --api-key k1 k2 --hf-token=t1 --port 80 --admin_api_key k3 -x 1")
	shown, secrets := hide(args)
	want := "serve m --api-key [secret] [secret] --hf-token=[secret] --port 80 --admin_api_key [secret] -x 1"
	if got := strings.Join(shown, " "); got != want {
		t.Errorf("shown %q; want %q", got, want)
	}
	if d := cmp.Diff([]string{"k1", "k2", "t1", "k3"}, secrets); d != "" {
		t.Errorf("secrets differ (-want +got):\n%s", d)
	}
}

func TestEnvironDropsWhatIsNotTheEngines(t *testing.T) {
	got := environ([]string{"A=1", "ADMITD_TOKEN=x", "PROMETHEUS_MULTIPROC_DIR=/old", "TMPDIR=/tmp", "B=2"}, "TMPDIR=/run/e", "C=3", "A=4")
	if d := cmp.Diff([]string{"A=4", "TMPDIR=/run/e", "B=2", "C=3"}, got); d != "" {
		t.Errorf("environment differs (-want +got):\n%s", d)
	}
}

func TestSecretValues(t *testing.T) {
	got := secretValues([]string{"HF_TOKEN=hf_0123456789", "VLLM_API_KEY=abcdefghij", "TOKENIZERS_PARALLELISM=false", "PATH=/usr/bin"})
	if d := cmp.Diff([]string{"hf_0123456789", "abcdefghij"}, got); d != "" {
		t.Errorf("secrets differ (-want +got):\n%s", d)
	}
}
