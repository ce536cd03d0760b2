package supervisor

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain makes the test binary its own fake engine: started with a script in the environment it plays that.
func TestMain(m *testing.M) {
	if script := os.Getenv(scriptEnv); script != "" {
		os.Exit(playEngine(script))
	}
	goleak.VerifyTestMain(m)
}
