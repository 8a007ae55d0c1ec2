package openapi

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A server that does not answer does not delay requests for documents of others, and requests for its
// own end in time.
func TestHungServerDelaysOnlyItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 50
		m := NewRemote(Config{})
		var hanging, most atomic.Int32
		serve := func(owner string, i int, fetch func() ([]byte, error)) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			key := fmt.Sprintf("apis/g%d/v1", i)
			link := "/openapi/v3/" + key + "?hash=1"
			r := httptest.NewRequest("GET", link, nil)
			if i%2 == 0 {
				r.Header.Set("Accept", mediaOpenAPIProtobufOld)
			}
			if !m.Serve(w, r, owner, key, link, fetch) {
				t.Errorf("the document %d of %s is left to its server", i, owner)
			}
			return w
		}
		hang := func() ([]byte, error) {
			n := hanging.Add(1)
			defer hanging.Add(-1)
			most.Store(max(most.Load(), n))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			<-ctx.Done()
			return nil, ctx.Err()
		}
		began := time.Now()
		var walk sync.WaitGroup
		for i := range many {
			walk.Go(func() {
				w := serve("silent", i, hang)
				if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "" || !strings.Contains(w.Body.String(), "in time") {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			})
		}
		synctest.Wait()
		if n := hanging.Load(); n != fetchesPerServer {
			t.Errorf("%d documents are fetched at a time", n)
		}
		for i := range 2 * runtime.GOMAXPROCS(0) {
			w := serve("well", i, func() ([]byte, error) {
				return []byte(`{"openapi":"3.0.0","info":{"title":"t","version":"v1"},"paths":{}}`), nil
			})
			if w.Code != http.StatusOK {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("another server's documents took %v", waited)
		}
		walk.Wait()
		if took := time.Since(began); took > fetchWait+5*time.Second || most.Load() != fetchesPerServer {
			t.Errorf("the walk took %v, %d documents at a time", took, most.Load())
		}
	})
}
