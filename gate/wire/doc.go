// Package wire speaks HTTP/1.1 on plain sockets behind net/http's own interfaces: Server takes an http.Handler, Client
// is an http.RoundTripper. It exists because the gate relays many small events, and net/http spends more on goroutines,
// buffers and timers around each of them than the relay spends on its work.
//
// Goal: one goroutine for each connection from a caller and none for one to the engine, one system call for each
// event that passes, buffers held only while they hold something, and a parser that takes one reading of a message only.
//
// Non-goals: TLS, HTTP/2, upgrades, hijacking, informational answers other than 100 Continue, trailers (they are read,
// bounded and dropped), being a general web server or client. Linux only.
//
// Invariants: a message that two readers could take for different ones is refused, and its connection closed (RFC 9112
// sections 2.2, 3, 5.1, 6.3, 11). A request is never sent to the engine again once one byte of it was written. A
// caller that closes its sending half counts as gone: its request's context ends. An answer that was cut off never
// ends like a whole one. A connection that takes no other request says so in its last answer.
package wire
