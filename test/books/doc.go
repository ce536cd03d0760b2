// Package books sends very many requests of every kind of ending through the gate and its admission and proves the books.
//
// Goal: whatever happens to a request, it has one decision and, when admitted, one outcome; reservations are given back
// once; tokens settled are the tokens that the engine said.
//
// Non-goals: sockets and processes; test/chaos has those.
package books
