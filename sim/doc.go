// Package sim is a simulated inference engine: the iteration-level model of sim/model behind an HTTP face that
// speaks the dialect of vLLM 0.32 or of SGLang, closely enough that a supervisor, a metrics scraper and a gate
// cannot tell it from the real one by its bytes, only by its honest "SIMULATED ENGINE" line.
//
// Goal: on any machine, without a GPU, an engine whose queues, KV cache, latencies, error bodies, streams, startup
// lines, exit behaviour and known defects are those of the real ones, reproducible from a seed.
//
// Non-goals: sensible text, tool calls, images, several models, the engines' administrative routes.
//
// Invariants: one goroutine owns the model and its one timer, and sleeps when nothing is to be done; handlers keep
// bounded state per request; a client that leaves frees its slot; the same prompt gets the same answer; a fault
// happens only when it was asked for by name.
//
// What is taken from recorded traffic of a vLLM 0.32.0 is tested against those records; SGLang's face follows its
// documentation and source and has not been compared with a recording.
package sim
