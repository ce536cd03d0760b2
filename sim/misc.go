package sim

import (
	"net/http"

	"github.com/tidwall/gjson"
)

// health says that the HTTP server is there, whatever the engine does: only a dead core makes it a 503.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Length", "0")
	if ok, played := s.ails(r.Context()); s.dead.Load() || played && !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	s.writeJSON(w, http.StatusOK, encode(struct {
		Version string `json:"version"`
	}{Version}))
}

func (s *Server) serverLoad(w http.ResponseWriter, _ *http.Request) {
	n := int64(0)
	if s.opt.ServerLoadTracking {
		n = s.load.Load()
	}
	if s.faults.on(FaultNegativeLoad) {
		n = -3
	}
	s.writeJSON(w, http.StatusOK, encode(struct {
		Load int64 `json:"server_load"`
	}{n}))
}

type modelPermission struct {
	ID                 string  `json:"id"`
	Object             string  `json:"object"`
	Created            int64   `json:"created"`
	AllowCreateEngine  bool    `json:"allow_create_engine"`
	AllowSampling      bool    `json:"allow_sampling"`
	AllowLogprobs      bool    `json:"allow_logprobs"`
	AllowSearchIndices bool    `json:"allow_search_indices"`
	AllowView          bool    `json:"allow_view"`
	AllowFineTuning    bool    `json:"allow_fine_tuning"`
	Organization       string  `json:"organization"`
	Group              *string `json:"group"`
	IsBlocking         bool    `json:"is_blocking"`
}

type modelCard struct {
	ID          string            `json:"id"`
	Object      string            `json:"object"`
	Created     int64             `json:"created"`
	OwnedBy     string            `json:"owned_by"`
	Root        string            `json:"root"`
	Parent      *string           `json:"parent"`
	MaxModelLen int               `json:"max_model_len"`
	Permission  []modelPermission `json:"permission,omitempty"`
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	var list struct {
		Object string      `json:"object"`
		Data   []modelCard `json:"data"`
	}
	list.Object = "list"
	now := s.unix()
	for _, name := range s.opt.ServedNames {
		card := modelCard{ID: name, Object: "model", Created: now, OwnedBy: s.opt.Dialect, Root: s.opt.Model, MaxModelLen: s.cfg.MaxModelLen}
		if s.opt.Dialect == VLLM {
			card.Permission = []modelPermission{{
				ID: "modelperm-" + s.newID(16), Object: "model_permission", Created: now, AllowSampling: true,
				AllowLogprobs: true, AllowView: true, Organization: "*",
			}}
		}
		list.Data = append(list.Data, card)
	}
	s.writeJSON(w, http.StatusOK, encode(list))
}

func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	body, bad := s.readBody(w, r)
	if bad != nil {
		s.writeError(w, openAI, bad)
		return
	}
	var out struct {
		Count       int      `json:"count"`
		MaxModelLen int      `json:"max_model_len"`
		Tokens      []uint32 `json:"tokens"`
		Strings     *string  `json:"token_strs"`
	}
	out.MaxModelLen = s.cfg.MaxModelLen
	out.Tokens = []uint32{}
	add := func(id uint32) { out.Tokens = append(out.Tokens, id) }
	b := gjson.ParseBytes(body)
	switch {
	case b.Get("messages").IsArray():
		chatTokens(b, add)
	case b.Get("prompt").Exists():
		textTokens(b.Get("prompt").String(), add)
	default:
		s.writeError(w, openAI, missing(b, "prompt"))
		return
	}
	out.Count = len(out.Tokens)
	s.writeJSON(w, http.StatusOK, encode(out))
}

// detokenize answers with as many words as there were tokens: the simulator's ids cannot be turned back.
func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	body, bad := s.readBody(w, r)
	if bad != nil {
		s.writeError(w, openAI, bad)
		return
	}
	b := gjson.ParseBytes(body)
	if !b.Get("tokens").IsArray() {
		s.writeError(w, openAI, missing(b, "tokens"))
		return
	}
	text := []byte{}
	b.Get("tokens").ForEach(func(_, v gjson.Result) bool {
		text = append(text, wordAt(uint64(v.Int()), 0, len(text) == 0)...)
		return true
	})
	s.writeJSON(w, http.StatusOK, encode(struct {
		Prompt string `json:"prompt"`
	}{string(text)}))
}

func (s *Server) countTokens(w http.ResponseWriter, r *http.Request) {
	body, bad := s.readBody(w, r)
	if bad != nil {
		s.writeError(w, anthropic, bad)
		return
	}
	b := gjson.ParseBytes(body)
	if bad := s.checkModel(b); bad != nil {
		s.writeError(w, anthropic, bad)
		return
	}
	n := 0
	chatTokens(b, func(uint32) { n++ })
	type management struct {
		Original int `json:"original_input_tokens"`
	}
	s.writeJSON(w, http.StatusOK, encode(struct {
		Tokens     int        `json:"input_tokens"`
		Management management `json:"context_management"`
	}{n, management{n}}))
}

// embeddings answers with short unit vectors made from the input's hash.
func (s *Server) embeddings(w http.ResponseWriter, r *http.Request) {
	body, bad := s.readBody(w, r)
	if bad != nil {
		s.writeError(w, openAI, bad)
		return
	}
	b := gjson.ParseBytes(body)
	if bad := s.checkModel(b); bad != nil {
		s.writeError(w, openAI, bad)
		return
	}
	if !b.Get("input").Exists() {
		s.writeError(w, openAI, missing(b, "input"))
		return
	}
	s.writeJSON(w, http.StatusOK, s.embed(b))
}
