package upstream

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"portico/apiservice/availability"
	"portico/apiservice/backend"
	"portico/internal/testing/await"
)

// While endpoints, policy and verdicts change, no unsafe request is carried out twice,
// and at the end no slot or request is held.
func TestChurn(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	done := map[string]int{}
	var nodes []*node
	var list []Endpoint
	for i := range 4 {
		n := startNode(t, []string{"tls", "unix"}[i%2], func(w http.ResponseWriter, r *http.Request) {
			if r.Method != "GET" {
				mu.Lock()
				done[r.Header.Get("X-Id")]++
				mu.Unlock()
			}
			switch rand.IntN(20) {
			case 0:
				panic(http.ErrAbortHandler)
			case 1:
				w.WriteHeader(503)
			case 2:
				w.WriteHeader(500)
			case 3:
				time.Sleep(5 * time.Millisecond)
			}
			fmt.Fprint(w, "answer")
		})
		nodes, list = append(nodes, n), append(list, n.endpoint())
	}
	p := NewPolicy(&backend.Spec{})
	p.Limits.Concurrent, p.Limits.Queue, p.Outlier.BaseEjectionTime = 2, 100, 10*time.Millisecond
	u := over(t, p, list...)
	stop := make(chan struct{})
	var clients, changes sync.WaitGroup
	for c := range 4 {
		clients.Go(func() {
			for i := range 80 {
				id := fmt.Sprint(c, "/", i)
				method, k := []string{"GET", "POST", "DELETE"}[i%3], kind(i%2)
				if got := send(t, u, k, method, []string{"", "body"}[i%2], "X-Id", id); is[*OverloadError](got.err) {
					t.Error("there was room in the queue")
				}
			}
		})
	}
	changes.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(3 * time.Millisecond):
			}
			n := rand.IntN(4)
			u.SetEndpoints(list[:1+n])
			p.Balance = []backend.Balance{backend.LeastRequest, backend.RoundRobin, backend.ConsistentHash}[rand.IntN(3)]
			p.Timeouts.Idle = time.Duration(1+rand.IntN(2)) * time.Minute
			u.SetPolicy(p)
			u.SetVerdict(list[n].URL, []availability.Verdict{healthy, unhealthy}[rand.IntN(2)])
			nodes[n].CloseClientConnections()
			_ = u.Status()
		}
	})
	clients.Wait()
	close(stop)
	changes.Wait()
	mu.Lock() // a handler of a canceled request may still run
	for id, n := range done {
		if n > 1 {
			t.Errorf("request %s was carried out %d times", id, n)
		}
	}
	mu.Unlock()
	await.Until(t, "slots or requests are left", func() bool {
		s := u.Status()
		left := s.Active + s.Waiting
		for _, e := range s.Endpoints {
			left += e.Active
		}
		return left == 0
	})
}
