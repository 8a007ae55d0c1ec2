package upstream

import (
	"sync"
	"time"

	"portico/resource/netround"
)

// rounds is what all connections of the process find out by how late it learns of what
// has come; nil: it was not needed yet, or cannot be made.
var rounds struct {
	mu    sync.Mutex
	round *netround.Round
}

// lateness goes through a round of the runtime and returns how long that took: how much
// later than it came what comes now is seen. 0 where that cannot be known.
func lateness() time.Duration {
	began := time.Now()
	rounds.mu.Lock()
	defer rounds.mu.Unlock()
	if rounds.round == nil {
		round, err := netround.New()
		if err != nil {
			return 0
		}
		rounds.round = round
	}
	if err := rounds.round.Pass(); err != nil {
		rounds.round.Close()
		rounds.round = nil
	}
	return time.Since(began)
}
