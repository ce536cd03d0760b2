package sim

import (
	"math"

	"github.com/tidwall/gjson"

	"admitd/sim/model"
)

// embeddingSize is the length of the simulated vectors.
const embeddingSize = 64

type embedding struct {
	Index     int       `json:"index"`
	Object    string    `json:"object"`
	Embedding []float64 `json:"embedding"`
}

// embed answers /v1/embeddings at once: pooling work is not modelled.
func (s *Server) embed(b gjson.Result) []byte {
	var out struct {
		ID      string      `json:"id"`
		Object  string      `json:"object"`
		Created int64       `json:"created"`
		Model   string      `json:"model"`
		Data    []embedding `json:"data"`
		Usage   wholeUsage  `json:"usage"`
	}
	out.ID, out.Object, out.Created, out.Model = "embd-"+s.newID(16), "list", s.unix(), s.opt.ServedNames[0]
	in := b.Get("input")
	inputs := []gjson.Result{in}
	if in.IsArray() && in.Get("0").Type != gjson.Number {
		inputs = in.Array()
	}
	for i, v := range inputs[:min(len(inputs), maxSequences)] {
		chain := model.NewChain(s.opt.Seed, s.cfg.BlockTokens)
		promptTokens(v, chain.Add)
		out.Usage.Prompt += chain.Len()
		out.Data = append(out.Data, embedding{i, "embedding", unitVector(chain.Sum())})
	}
	out.Usage.Total = out.Usage.Prompt
	return encode(out)
}

func unitVector(seed uint64) []float64 {
	v := make([]float64, embeddingSize)
	sum := 0.0
	for i := range v {
		v[i] = float64(int64(scramble(seed+uint64(i)))) / (1 << 63)
		sum += v[i] * v[i]
	}
	for i := range v {
		v[i] /= math.Sqrt(sum)
	}
	return v
}
