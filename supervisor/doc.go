// Package supervisor launches, watches, restarts and stops one engine process, or attaches to one that runs
// elsewhere.
//
// Goal: exactly one engine, reachable only by us, whose state has a name at every moment, and which outlives us unless we are
// asked to stop.
//
// Non-goals: deciding about requests, reading metrics.
//
// Invariants: one goroutine owns the state; exit codes prove nothing, only our own intent tells a stop from a
// crash; no process of ours is left when we say stopped; the child's output can neither block it nor fill our
// memory; a process is ended by pid and start time together, so never one that was given the pid of ours later; an engine
// has one owner, which its record names, and nobody else launches, signals or records.
//
// # Adoption
//
// The engine prints into a file (engine.log in the state directory), so it neither notices nor minds that admitd dies. Its record
// (engine.json, for our eyes only) says which process it is, how it was launched, with what key, and how far its start has
// come. A supervisor that finds a record claims it, and then adopts the engine: when its first process lives with the recorded
// start time, today's options would launch it with the same arguments, and, if it had been ready, it is healthy, lists
// the model to whoever has the recorded key, and brings out a token or is at least busy. Whatever does not match is ended, with
// the reason in the log, before another engine is launched. The end of an adopted engine is seen by its process descriptor; its exit
// status only its parent could know.
//
// # Handover
//
// An upgrade has two admitds for a while, which share the state directory's lock (DirLock.File and Inherit). The old one calls
// Release, which writes the record for the last time and lets go; its transport reaches the engine until its own requests are
// done. Then the new one's Run adopts. If the new one fails, the old process adopts again with a new supervisor. The other order
// is safe as well: a claim, made under a lock of its own (engine.owner), takes the engine from a supervisor that still watches it,
// and whatever would make that one act makes it let go instead. A claim by a process that has died since counts for nothing.
//
// Linux only: it reads /proc and makes the calling process the reaper of its orphans (PR_SET_CHILD_SUBREAPER), so that an
// engine whose leader died is still found and ended. Orphans that are not the engine's are left to whoever waits for them.
package supervisor
