package model

// Chain builds the hash chain of a prompt's KV blocks: the hash of a block covers the block's tokens and, through
// the previous hash, everything before it, so equal hashes mean equal prefixes.
type Chain struct {
	block  int
	n      int
	cur    uint64
	hashes []uint64
}

// NewChain starts a chain over blocks of blockTokens tokens. Different salts never share blocks.
func NewChain(salt uint64, blockTokens int) *Chain {
	return &Chain{block: max(blockTokens, 1), cur: mix(salt ^ 0x9e3779b97f4a7c15)}
}

// Add appends one token id.
func (c *Chain) Add(token uint32) {
	c.cur = mix(c.cur ^ (uint64(token) + 0x632be59bd9b4e019))
	c.n++
	if c.n%c.block == 0 {
		c.hashes = append(c.hashes, c.cur)
	}
}

// Fork returns an independent copy that goes on from here.
func (c *Chain) Fork() *Chain {
	d := *c
	d.hashes = append([]uint64(nil), c.hashes...)
	return &d
}

// Len is the number of tokens added.
func (c *Chain) Len() int { return c.n }

// Sum is the hash of everything added so far.
func (c *Chain) Sum() uint64 { return c.cur }

// Hashes returns one hash per full block. The caller may keep the slice if no further token is added.
func (c *Chain) Hashes() []uint64 { return c.hashes }

// mix is the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection with good avalanche.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb
	return x ^ (x >> 31)
}
