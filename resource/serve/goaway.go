package serve

import (
	"math/rand/v2"
	"net/http"
)

// maxGoawayChance keeps clients from connecting for every few requests.
const maxGoawayChance = 0.02

// goaway ends HTTP/2 connections by chance (contract 0.1): clients hold theirs
// for as long as they can, so that a server that was started anew, behind a load
// balancer, would get none for hours. What is under way on a connection goes on.
func (s *Server) goaway(_ http.ResponseWriter, r *http.Request) bool {
	if chance := s.cfg.GoawayChance; chance > 0 && r.ProtoMajor == 2 && rand.Float64() < chance {
		exchangeFrom(r.Context()).closing.Store(true)
	}
	return true
}
