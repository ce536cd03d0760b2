package sim

import "net/http"

func (s *Server) sglangRoutes() map[string]map[string]http.HandlerFunc {
	return s.vllmRoutes()
}
