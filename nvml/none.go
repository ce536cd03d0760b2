//go:build !linux || !cgo

package nvml

// System returns a library that is never there: this build cannot load the machine's own.
func System() Library { return none{} }

type none struct{}

func (none) fail(op string) error         { return &Error{Op: op, Code: CodeLibraryNotFound} }
func (n none) Init() error                { return n.fail("nvmlInit") }
func (n none) Shutdown() error            { return n.fail("nvmlShutdown") }
func (n none) Driver() (string, error)    { return "", n.fail("nvmlSystemGetDriverVersion") }
func (n none) Count() (int, error)        { return 0, n.fail("nvmlDeviceGetCount") }
func (n none) Device(int) (Handle, error) { return nil, n.fail("nvmlDeviceGetHandleByIndex") }
func (n none) ProcessName(int) (string, error) {
	return "", n.fail("nvmlSystemGetProcessName")
}
func (n none) Events() (Events, error) { return nil, n.fail("nvmlEventSetCreate") }
