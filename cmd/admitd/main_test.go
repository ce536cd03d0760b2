package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes the test binary be admitd where a script, or an admitd that a script started, runs it under that name.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"admitd": main})
}

// TestScripts runs what an operator would type: one topic a file in testdata/script. Their own commands are in
// script_test.go.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", Setup: scriptSetup, Cmds: scriptCommands(), RequireExplicitExec: true, RequireUniqueNames: true,
	})
}
