package supervisor

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain makes the test binary its own fake engine: started with a script in the environment it plays that.
func TestMain(m *testing.M) {
	if script := os.Getenv(scriptEnv); script != "" {
		os.Exit(playEngine(script))
	}
	// Tests of real processes wait far more than they work.
	flag.Parse()
	if err := flag.Set("test.parallel", "10"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
