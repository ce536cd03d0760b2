// Package model is the pure heart of the engine simulator: an iteration-level model of a continuous-batching
// engine with a paged KV cache.
//
// Goal: the same admission-relevant behaviour as a stock engine: batches of decodes first, then running
// prefills in chunks, then waiting requests in order of arrival; KV blocks taken step by step; a prefix cache
// with least-recently-used eviction; preemption by recomputation of the last running request.
//
// Non-goals: HTTP, text, real time, speculative decoding, several ranks, KV offload.
//
// Invariants: no clock, no goroutine, no random source, no map iteration order: the same calls give the same
// events. Every block is exactly one of free, cached (free but still holding a prefix) or used. A request ends
// exactly once. When nothing is in flight every block is free or cached.
//
// Sources: the scheduler's order of work, block hash chains and tail-first eviction follow the published design
// of vLLM V1 (Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention",
// SOSP 2023; chunked prefill after Agrawal et al., "Sarathi-Serve", OSDI 2024). The form of the step time is the
// one used by BLIS and Vidur-like simulators: linear in prefill tokens, their context, decodes and KV read.
package model
