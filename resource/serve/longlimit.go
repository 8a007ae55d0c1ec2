package serve

import (
	"net/http"

	"portico/resource"
	"portico/resource/fairshare"
)

// Streams of discovery (GET /apis?watch=true) are open to every authenticated user and
// cost about 50 KB each. One client needs one; a user gets discoveryStreams of them, and
// all users together a part of the long-running requests.
const (
	discoveryStreams     = 100
	discoveryStreamsPart = 8
)

// longRunning counts the long-running requests.
type longRunning struct{ all, discovery *fairshare.Limit }

func newLongRunning(cfg *Config) longRunning {
	discovery := 0
	if cfg.MaxLongRunning > 0 {
		discovery = max(1, cfg.MaxLongRunning/discoveryStreamsPart)
	}
	return longRunning{fairshare.New(cfg.MaxLongRunning, cfg.MaxLongRunningPerUser), fairshare.New(discovery, discoveryStreams)}
}

// limitLong answers 429 to long-running requests while there are more than the server
// takes, in all or of the user. One that may become long-running, because it asks for
// another protocol or may be answered with a stream of events, has its place from the
// beginning. The place is given back at the request's end (leave).
func (s *Server) limitLong(w http.ResponseWriter, r *http.Request) bool {
	x, action := exchangeFrom(r.Context()), resource.ActionFrom(r.Context())
	if !action.LongRunning() && x.leaving == nil {
		return true
	}
	limit := s.long.all
	if action.Follow {
		limit = s.long.discovery
	}
	if !take(limit, action.User) {
		s.tooMany(w, r, action)
		return false
	}
	x.lasting, x.holder = limit, action.User.Name
	return true
}
