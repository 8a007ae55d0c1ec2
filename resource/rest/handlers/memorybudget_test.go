package handlers

import (
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"portico/resource"
	"portico/resource/rest/body"
)

// largeMap returns a config map that takes about 10 MB to decode.
func largeMap(name string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{%s}}`, name, numbered(25_000, `"k%x":""`))
}

// sendAs calls the API with a request of a user.
func (b *bench) sendAs(user *resource.User, method, path, contentType string, body io.Reader) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(method, path, body), httptest.NewRecorder()
	r.Header.Set("Content-Type", contentType)
	asUser(b.api, user)(w, r)
	return w
}

// While other requests use all memory for decoding, large bodies and small patches of large
// objects are a 429 with Retry-After; ordinary bodies and those of administrators are
// accepted. All memory is released.
func TestMemoryForDecoding(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	send := func(user, method, path, body string, code int) {
		t.Helper()
		u, contentType := &resource.User{Name: user}, runtime.ContentTypeJSON
		if user == "admin" {
			u.Groups = []string{resource.GroupMasters}
		}
		if method == "PATCH" {
			contentType = mergePatch
		}
		w := b.sendAs(u, method, path, contentType, strings.NewReader(body))
		if w.Code != code || code == 429 && (w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), `"reason":"TooManyRequests"`)) {
			t.Errorf("%s %s by %s: got %d %v %.300s, want %d", method, path, user, w.Code, w.Header(), w.Body, code)
		}
	}
	const dry, patch = configMaps + "?dryRun=All", `{"data":{"k":"v"}}`
	send("jane", "POST", configMaps, largeMap("a"), 201)
	var holds []body.Hold
	for i, n := 0, 1; n > 0; i++ { // users take what they can
		h := b.api.decoding.Hold(&resource.Action{User: &resource.User{Name: fmt.Sprint(i)}})
		for n = 0; h.Grow(1<<20) == nil; n++ {
		}
		holds = append(holds, h)
	}
	send("jane", "POST", dry, largeMap("large"), 429)
	send("jane", "PATCH", configMapA, patch, 429)
	send("jane", "POST", dry, `{"metadata":{"name":"small"},"data":{"k":"v"}}`, 201)
	send("admin", "POST", dry, largeMap("large"), 201)
	for i := range holds {
		holds[i].Release()
	}
	send("jane", "POST", dry, largeMap("large"), 201)
	send("jane", "PATCH", configMapA, patch, 200)
	if n := b.api.decoding.InUse(); n != 0 {
		t.Errorf("%d bytes are reserved after all requests", n)
	}
}

// Senders of endless bodies use memory up to a bound; other users can still send ordinary
// bodies.
func TestMemoryForReading(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const senders = 60
	arrived := strings.Repeat(" ", 2<<20)
	var all, sent sync.WaitGroup
	var codes [senders]int
	end := make(chan struct{})
	sent.Add(senders)
	for i := range senders {
		all.Go(func() {
			body := io.MultiReader(strings.NewReader(arrived), readerFunc(func([]byte) (int, error) {
				sent.Done()
				<-end
				return 0, io.EOF
			}))
			codes[i] = b.sendAs(&resource.User{Name: fmt.Sprint(i % 8)}, "POST", configMaps, runtime.ContentTypeJSON, body).Code
		})
	}
	sent.Wait()
	if n := b.api.reading.InUse(); n > body.ReadMemory || n == 0 {
		t.Errorf("%d bytes are reserved, want at most %d", n, body.ReadMemory)
	}
	if w := b.sendAs(&resource.User{Name: "jane"}, "POST", configMaps, runtime.ContentTypeJSON, strings.NewReader(`{"metadata":{"name":"small"}}`)); w.Code != 201 {
		t.Errorf("a small body got %d %s", w.Code, w.Body)
	}
	close(end)
	all.Wait()
	refused := 0
	for _, code := range codes {
		if code == 429 {
			refused++
		} else if code != 400 {
			t.Errorf("got %d", code)
		}
	}
	if refused == 0 || refused == senders {
		t.Errorf("%d of %d were rejected", refused, senders)
	}
	if n := b.api.reading.InUse(); n != 0 {
		t.Errorf("%d bytes are reserved after all requests", n)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
