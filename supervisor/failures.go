package supervisor

import "strings"

// signature is a failure that the engine's own words give away. The words are from the engines' sources and from runs of
// vLLM 0.32 with each mistake made on purpose.
type signature struct {
	// all must be in one line.
	all []string
	// cause says what happened; hint what a person can do about it.
	cause, hint string
	// permanent means that launching the same thing again cannot succeed. It counts only for an engine that was not ready
	// yet: one that worked an hour ago can work again.
	permanent bool
	// dead means that the line speaks of the death of the whole engine, which is worth a look at once.
	dead bool
}

func (s *signature) matches(line string) bool {
	for _, part := range s.all {
		if !strings.Contains(line, part) {
			return false
		}
	}
	return true
}

// signatures returns the table of an engine, most specific first.
func signatures(k Kind) []signature {
	if k == External {
		return nil
	}
	table := modelSignatures()
	table = append(table, memorySignatures(k)...)
	return append(table, machineSignatures(k)...)
}

// modelSignatures are mistakes in what was asked for.
func modelSignatures() []signature {
	const lookHint = "check the model's name or path; a name is looked up on the model hub or in its local cache"
	gated := "accept the model's licence on its hub page and set HF_TOKEN to a token that may read it"
	return []signature{
		{all: []string{": error: unrecognized arguments:"}, permanent: true,
			cause: "the engine does not know an argument", hint: "correct or remove the argument after --; the installed version may be older or newer than it"},
		{all: []string{": error: argument "}, permanent: true,
			cause: "the engine refused the value of an argument", hint: "correct the argument after --; the line names it"},
		{all: []string{": error: the following arguments are required"}, permanent: true,
			cause: "the engine misses an argument", hint: "add the argument that the line names after --"},
		{all: []string{"gated repo"}, permanent: true, cause: "the model needs a licence agreement", hint: gated},
		{all: []string{"GatedRepoError"}, permanent: true, cause: "the model needs a licence agreement", hint: gated},
		{all: []string{"is not a local folder and is not a valid model identifier"}, permanent: true,
			cause: "the model was not found", hint: lookHint},
		{all: []string{"Repo id must be in the form"}, permanent: true,
			cause: "the model's folder does not exist", hint: "a model that begins with / or . must be a folder on this machine"},
		{all: []string{"RepositoryNotFoundError"}, permanent: true, cause: "the model was not found on the hub", hint: lookHint},
		{all: []string{"Repository Not Found for url"}, permanent: true, cause: "the model was not found on the hub", hint: lookHint},
		{all: []string{"LocalEntryNotFoundError", "outgoing traffic has been disabled"}, permanent: true,
			cause: "the model is not in the local cache and the engine is offline", hint: "fetch the model once while online, or unset HF_HUB_OFFLINE"},
		{all: []string{"LocalEntryNotFoundError"}, cause: "the model is not in the local cache and could not be fetched",
			hint: "check the connection to the model hub"},
		{all: []string{"does not appear to have a file named"}, permanent: true,
			cause: "the model's folder lacks a file", hint: "fetch the model again; the line names the file"},
		{all: []string{"Model architectures", "are not supported"}, permanent: true,
			cause: "the engine does not support this kind of model", hint: "use a newer engine or another model"},
		{all: []string{"is greater than the derived max_model_len"}, permanent: true,
			cause: "the context length is larger than the model's", hint: "lower --max-model-len to what the line allows"},
	}
}

// memorySignatures are about too little memory.
func memorySignatures(k Kind) []signature {
	lower := "lower --max-model-len or raise --gpu-memory-utilization"
	oom := "lower --gpu-memory-utilization or --max-num-seqs, or use a smaller or quantised model"
	if k == SGLang {
		oom = "lower --mem-fraction-static or --max-running-requests, or use a smaller or quantised model"
	}
	return []signature{
		{all: []string{"Free memory on device", "less than desired GPU memory utilization"},
			cause: "another process holds the GPU's memory", hint: "end the process that nvidia-smi shows, or lower --gpu-memory-utilization"},
		{all: []string{"No available memory for the cache blocks"}, permanent: true,
			cause: "the model leaves no memory for the KV cache", hint: "raise --gpu-memory-utilization, or use a smaller or quantised model"},
		{all: []string{"KV cache is needed, which is larger than the available"}, permanent: true,
			cause: "one request of the full context does not fit into the KV cache", hint: lower},
		{all: []string{"is larger than the maximum number of tokens that can be stored in KV cache"}, permanent: true,
			cause: "one request of the full context does not fit into the KV cache", hint: lower},
		{all: []string{"Not enough memory. Please try to increase --mem-fraction-static"}, permanent: true,
			cause: "the model leaves no memory for the KV cache", hint: "raise --mem-fraction-static, or use a smaller or quantised model"},
		{all: []string{"CUDA out of memory"}, cause: "the GPU ran out of memory", hint: oom},
		{all: []string{"torch.OutOfMemoryError"}, cause: "the GPU ran out of memory", hint: oom},
	}
}

// machineSignatures are about the machine and the engine's installation.
func machineSignatures(k Kind) []signature {
	t := []signature{
		{all: []string{"admitd: unknown flag"}, permanent: true,
			cause: "the simulator does not know an argument", hint: "see admitd sim --help"},
		{all: []string{"Failed to infer device type"}, permanent: true,
			cause: "the engine found no device it can use", hint: "check that the driver works (nvidia-smi) and that the installed build is the one for this device"},
		{all: []string{"CUDA driver version is insufficient"}, permanent: true,
			cause: "the GPU driver is too old for the engine", hint: "update the driver or install an engine built for it"},
		{all: []string{"No CUDA GPUs are available"}, permanent: true,
			cause: "the engine sees no GPU", hint: "check nvidia-smi and CUDA_VISIBLE_DEVICES"},
		{all: []string{"No module named 'sglang'"}, permanent: true,
			cause: "SGLang is not installed for this Python", hint: "install it, or give the Python that has it with --engine-binary"},
		{all: []string{"No module named 'vllm'"}, permanent: true,
			cause: "vLLM is not installed for this Python", hint: "install it, or give the command that has it with --engine-binary"},
		{all: []string{"No space left on device"}, cause: "a disk is full", hint: "free space in the model cache and the temporary directory"},
		{all: []string{"ddress already in use"}, cause: "the engine's port is taken", hint: "end its holder, or choose another port"},
		{all: []string{"Port is already in use"}, cause: "the engine's port is taken", hint: "end its holder, or choose another port"},
		{all: []string{"Worker proc", "died unexpectedly"}, cause: "a worker process died", hint: "look for its last lines in the engine's log"},
		{all: []string{"engine core exited unexpectedly"}, dead: true, cause: "the engine's core died", hint: "look for the first traceback in the engine's log"},
		{all: []string{"EngineCore encountered an issue"}, dead: true, cause: "the engine's core died", hint: "look for the first traceback in the engine's log"},
	}
	if k == SGLang {
		t = append(t,
			signature{all: []string{"Scheduler hit an exception"}, dead: true, cause: "SGLang's scheduler died", hint: "look for the first traceback in the engine's log"},
			signature{all: []string{"Received sigquit from a child process"}, dead: true, cause: "a process of SGLang died", hint: "look for the first traceback in the engine's log"})
	}
	return t
}
