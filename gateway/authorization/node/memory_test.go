package node

import (
	"fmt"
	"log/slog"
	"runtime"
	"testing"

	"portico/internal/testing/memstore"
	"portico/resource"
)

// What is kept of a pod is a small part of it: at most 2 KB for one with a ServiceAccount, a token,
// and a Secret, a ConfigMap and a claim of its own.
func TestMemoryOfPods(t *testing.T) {
	const count, most = 10_000, 2000
	f := &follower{graph: newGraph(), kind: pods, store: memstore.New().Store(&followed[0].info), make: followed[0].make, log: slog.New(slog.DiscardHandler)}
	heap := func() uint64 {
		runtime.GC()
		runtime.GC() // the first one leaves what sync.Pools hold
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range count {
		obj, err := resource.Parse([]byte(fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"application-7d4b9c6f5-%05d","namespace":"namespace-%02d","uid":"u"},
"spec":{"nodeName":"node-%03d","serviceAccountName":"application","containers":[{"name":"c","image":"i"}],
"volumes":[{"name":"a","projected":{"sources":[{"serviceAccountToken":{}},{"configMap":{"name":"kube-root-ca.crt"}}]}},{"name":"s","secret":{"secretName":"secret-%05d"}},
{"name":"c","configMap":{"name":"configuration-%05d"}},{"name":"d","persistentVolumeClaim":{"claimName":"data-%05d"}}]}}`, i, i%50, i%500, i, i, i)))
		if err != nil {
			t.Fatal(err)
		}
		f.apply(resource.Event{Type: resource.Added, Object: obj})
	}
	per := (int64(heap()) - int64(before)) / count
	runtime.KeepAlive(f)
	if t.Logf("%d bytes per pod", per); per > most || per < 100 {
		t.Errorf("%d bytes per pod, want at most %d", per, most)
	}
}
