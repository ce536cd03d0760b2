package sim

// faultsOfProcesses lists the faults of processes, health and queues: the bugs 22 to 42.
func faultsOfProcesses() []FaultInfo { return nil }
