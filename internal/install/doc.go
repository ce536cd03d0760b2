// Package install puts inference engines into a folder of admitd's own and finds them there.
//
// Goal: one command gives a working engine, on a network that fails and with a person who presses Ctrl-C: an install that
// was cut is taken up by the next one, and `serve` never sees a half-installed engine.
//
// Non-goals: being a package manager. Python's own venv and pip fetch and unpack; where from is pip's own configuration.
// Running engines is the supervisor's work.
//
// Invariants: the marker (installed.json) is written last, whole, by a rename, and is what makes a folder an engine. One
// install works in a folder at a time: a lock that the programs it starts share, so that it holds until the last of them has
// ended, also after a kill -9 of admitd. An engine that is in use is not removed. Nothing outside the engine's folder and the
// package cache is written. What pip prints goes to install.log in the folder, never into an error as it is: addresses may
// hold passwords.
package install
