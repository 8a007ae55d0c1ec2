package swagger

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"portico/discovery/openapi"
)

// A server whose own document is too large is known by its v3 documents, and is
// not asked for the large one all the time.
func TestWholeOfALargeServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		const url = "/openapi/v3/apis/big.example.com/v1?hash=1"
		f.add("big", "big.example.com", url, serverV3("big.example.com", "Big"))
		f.add("lone", "lone.example.com", "", map[string]Answer{})
		ask2 := f.servers[0].Fetch
		large := func(ctx context.Context, path, etag string) (*Answer, error) {
			a, err := ask2(ctx, path, etag)
			if path == "/openapi/v2" {
				return nil, &openapi.BrokenError{Err: &largeError{path}}
			}
			return a, err
		}
		f.servers[0].Fetch, f.servers[1].Fetch = large, large
		w, _, _ := started(t, f)
		if got := definitions(t, ask(w)); !slices.Equal(got, []string{"Meta", "big.example.com.v1.Big"}) {
			t.Errorf("definitions %v", got)
		}
		if broken := w.Broken(); len(broken) != 1 || !strings.Contains(broken["v1.lone.example.com"], "larger than") {
			t.Errorf("broken are %v", broken)
		}
		for range 30 {
			time.Sleep(refreshDefault)
			ask(w)
			synctest.Wait()
		}
		if n := f.counted("big /openapi/v2"); n > 8 { // two for the other server's tries
			t.Errorf("the large document was asked for %d times", n)
		}
		f.change("2", func() {
			f.servers[0].Fetch = ask2
			f.servers[0].State = "another"
			f.says["big"] = serverV2("big.example.com", "small")
		})
		if got := definitions(t, ask(w)); !slices.Contains(got, "Flunder") || slices.Contains(got, "big.example.com.v1.Big") {
			t.Errorf("when it is small: %v", got)
		}
	})
}

// A server that hangs costs the others the time of one document, and its own
// documents that can be had come nevertheless.
func TestWholeWithAHungServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		says := map[string]Answer{}
		var documents []Document
		for i := range 20 {
			group := fmt.Sprintf("h%02d.example.com", i)
			url := "/openapi/v3/apis/" + group + "/v1?hash=1"
			maps.Copy(says, serverV3(group, "Thing"))
			documents = append(documents, Document{APIService: "v1." + group, Key: "apis/" + group + "/v1", URL: url})
		}
		f.add("hung", "h00.example.com", documents[0].URL, says)
		f.servers[0].Documents = documents
		answers, all := f.servers[0].Fetch, true
		f.servers[0].Fetch = func(ctx context.Context, path, etag string) (*Answer, error) {
			f.mu.Lock()
			hangs := strings.HasPrefix(path, "/openapi/v3") && (all || path == documents[3].URL)
			f.mu.Unlock()
			if hangs {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return answers(ctx, path, etag)
		}
		f.add("crd", "a.example.com", "/openapi/v3/apis/a.example.com/v1?hash=1", serverV3("a.example.com", "Apple"))
		w, _, _ := started(t, f)
		began := time.Now()
		for ; ; time.Sleep(time.Second) {
			if rec := ask(w); rec.Code == http.StatusOK {
				if got := definitions(t, rec); !slices.Equal(got, []string{"Meta", "a.example.com.v1.Apple"}) {
					t.Errorf("definitions %v", got)
				}
				break
			}
		}
		if took := time.Since(began); took > fetchTimeout+5*time.Second {
			t.Errorf("the others' part took %v", took)
		}
		f.mu.Lock()
		all = false
		f.mu.Unlock()
		got := 0
		for range 10 {
			time.Sleep(refreshDefault)
			got = len(definitions(t, ask(w)))
			synctest.Wait()
		}
		if want := 2 + 19; got != want {
			t.Errorf("%d definitions, of all documents but the one that hangs there are %d", got, want)
		}
	})
}
