package gateway

import (
	"sync"
	"testing"

	"portico/resource"
	"portico/resource/loop"
)

// Whatever is told at the same time, what is passed on last is the newest of both.
func TestPairPassesOnTheNewest(t *testing.T) {
	for range 200 {
		var p pair
		var svc, eps [20]loop.Snapshot
		var lastSvc, lastEps int
		follow := func(s, e loop.Snapshot) { lastSvc, lastEps = len(s.Items), len(e.Items) }
		for i := range svc {
			svc[i].Items, eps[i].Items = make([]*resource.Object, i), make([]*resource.Object, i)
		}
		var both sync.WaitGroup
		both.Go(func() {
			for i := range svc {
				p.tell(func() { p.svc = &svc[i] }, follow)
			}
		})
		both.Go(func() {
			for i := range eps {
				p.tell(func() { p.eps = &eps[i] }, follow)
			}
		})
		both.Wait()
		if lastSvc != len(svc)-1 || lastEps != len(eps)-1 {
			t.Fatalf("passed on last: %d and %d", lastSvc, lastEps)
		}
	}
}
