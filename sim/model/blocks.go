package model

import (
	"errors"
	"fmt"
	"slices"
)

// pool is the paged KV cache: blocks with a reference count, a queue of unreferenced blocks in order of eviction,
// and an index from prefix hash to the block that holds it.
type pool struct {
	blocks []block
	// head and tail of the queue of unreferenced blocks; -1 when empty. The head is evicted first.
	head, tail int
	unused     int
	cached     int
	index      map[uint64]int
}

type block struct {
	refs       int
	hash       uint64
	hashed     bool
	prev, next int
}

func newPool(n int) *pool {
	p := &pool{blocks: make([]block, n), head: -1, tail: -1, index: make(map[uint64]int)}
	for i := range p.blocks {
		p.push(i)
	}
	return p
}

func (p *pool) push(i int) {
	b := &p.blocks[i]
	b.prev, b.next = p.tail, -1
	if p.tail >= 0 {
		p.blocks[p.tail].next = i
	} else {
		p.head = i
	}
	p.tail = i
	p.unused++
	if b.hashed {
		p.cached++
	}
}

func (p *pool) unlink(i int) {
	b := &p.blocks[i]
	if b.prev >= 0 {
		p.blocks[b.prev].next = b.next
	} else {
		p.head = b.next
	}
	if b.next >= 0 {
		p.blocks[b.next].prev = b.prev
	} else {
		p.tail = b.prev
	}
	b.prev, b.next = -1, -1
	p.unused--
	if b.hashed {
		p.cached--
	}
}

// take removes the block that has been unused longest and forgets the prefix it held. ok is false when every
// block is referenced.
func (p *pool) take() (i int, ok bool) {
	i = p.head
	if i < 0 {
		return 0, false
	}
	p.unlink(i)
	p.forget(i)
	p.blocks[i].refs = 1
	return i, true
}

// share adds a reference to a block that was found by its prefix.
func (p *pool) share(i int) {
	if p.blocks[i].refs == 0 {
		p.unlink(i)
	}
	p.blocks[i].refs++
}

// release drops one reference to each block, the last block first, so that the tail of a sequence is evicted
// before its beginning.
func (p *pool) release(list []int) {
	for _, l := range slices.Backward(list) {
		b := &p.blocks[l]
		b.refs--
		if b.refs == 0 {
			p.push(l)
		}
	}
}

// remember makes a full block findable by its prefix hash. When another block already holds that prefix, this one
// stays private.
func (p *pool) remember(i int, hash uint64) {
	if _, taken := p.index[hash]; taken || p.blocks[i].hashed {
		return
	}
	p.blocks[i].hash, p.blocks[i].hashed = hash, true
	p.index[hash] = i
}

// forget removes a block from the prefix index; the block must not be in the queue of unreferenced blocks.
func (p *pool) forget(i int) {
	b := &p.blocks[i]
	if b.hashed {
		delete(p.index, b.hash)
		b.hash, b.hashed = 0, false
	}
}

// prefix returns the blocks that hold the longest known beginning of the chain, at most limit of them, and how
// many of those are unreferenced now.
func (p *pool) prefix(chain []uint64, limit int) (list []int, idle int) {
	for k := 0; k < len(chain) && k < limit; k++ {
		i, ok := p.index[chain[k]]
		if !ok {
			break
		}
		list = append(list, i)
		if p.blocks[i].refs == 0 {
			idle++
		}
	}
	return list, idle
}

// dropCache forgets every prefix.
func (p *pool) dropCache() {
	for i := range p.blocks {
		if b := &p.blocks[i]; b.hashed {
			if b.refs == 0 {
				p.cached--
			}
			p.forget(i)
		}
	}
}

// check recounts everything and says what does not add up.
func (p *pool) check() error {
	queue, cached, used := 0, 0, 0
	for i, last := p.head, -1; i >= 0; i = p.blocks[i].next {
		if p.blocks[i].refs != 0 || p.blocks[i].prev != last {
			return fmt.Errorf("block %d is queued with %d references and prev %d, want 0 and %d", i, p.blocks[i].refs, p.blocks[i].prev, last)
		}
		if queue++; queue > len(p.blocks) {
			return errors.New("the queue of unreferenced blocks has a cycle")
		}
		if p.blocks[i].hashed {
			cached++
		}
		last = i
	}
	hashed := 0
	for i := range p.blocks {
		if p.blocks[i].refs < 0 {
			return fmt.Errorf("block %d has %d references", i, p.blocks[i].refs)
		}
		if p.blocks[i].refs > 0 {
			used++
		}
		if p.blocks[i].hashed {
			hashed++
			if p.index[p.blocks[i].hash] != i {
				return fmt.Errorf("block %d is not in the index under its own hash", i)
			}
		}
	}
	if queue != p.unused || cached != p.cached || used+queue != len(p.blocks) || hashed != len(p.index) {
		return fmt.Errorf("blocks do not add up: %d queued (counted %d), %d cached (counted %d), %d used, %d hashed (index %d), %d in all",
			queue, p.unused, cached, p.cached, used, hashed, len(p.index), len(p.blocks))
	}
	return nil
}
