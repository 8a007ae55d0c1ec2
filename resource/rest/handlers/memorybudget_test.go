package handlers

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"portico/resource"
	"portico/resource/rest/body"

	"k8s.io/apimachinery/pkg/runtime"
)

// largeMap returns a config map that takes about 60 MB to decode.
func largeMap(name string) string {
	var data strings.Builder
	for i := range 150_000 {
		fmt.Fprintf(&data, `"k%x":"",`, i)
	}
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{%s"z":""}}`, name, data.String())
}

// sendAs calls the API with a request of a user.
func (b *writeBench) sendAs(user *resource.User, method, path, contentType string, body io.Reader) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, body)
	r.Header.Set("Content-Type", contentType)
	act := resource.ParseAction(r)
	act.User = user
	w := httptest.NewRecorder()
	b.api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
	return w
}

// While other requests use all memory for bodies, large bodies are a 429 with Retry-After;
// ordinary ones and those of administrators are accepted. All memory is released.
func TestMemoryForDecoding(t *testing.T) {
	t.Parallel()
	b := newWriteBench(t)
	jane, admin := &resource.User{Name: "jane"}, &resource.User{Name: "admin", Groups: []string{resource.GroupMasters}}
	large := largeMap("large")
	post := func(user *resource.User, body string) *httptest.ResponseRecorder {
		return b.sendAs(user, "POST", inDefault+"configmaps?dryRun=All", runtime.ContentTypeJSON, strings.NewReader(body))
	}
	var holds []body.Hold
	for i := 0; ; i++ { // users take what they can
		h := b.api.decoding.Hold(&resource.User{Name: fmt.Sprint(i)})
		n := 0
		for h.Grow(1<<20) == nil {
			n++
		}
		holds = append(holds, h)
		if n == 0 {
			break
		}
	}
	w := post(jane, large)
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), `"reason":"TooManyRequests"`) {
		t.Errorf("got %d %v %s", w.Code, w.Header(), w.Body)
	}
	if w := post(jane, `{"metadata":{"name":"small"},"data":{"k":"v"}}`); w.Code != http.StatusCreated {
		t.Errorf("a small body got %d %s", w.Code, w.Body)
	}
	admins := strings.Replace(large[:len(large)/3], "large", "admins", 1)
	admins = admins[:strings.LastIndex(admins, ",")] + "}}"
	if w := post(admin, admins); w.Code != http.StatusCreated {
		t.Errorf("an administrator got %d %.300s", w.Code, w.Body)
	}
	for i := range holds {
		holds[i].Release()
	}
	if w := post(jane, large); w.Code != http.StatusCreated {
		t.Errorf("with memory, got %d %.300s", w.Code, w.Body)
	}
	if n := b.api.decoding.InUse(); n != 0 {
		t.Errorf("%d bytes are held", n)
	}
}

// A small patch of a large object reserves memory for the object.
func TestMemoryForStored(t *testing.T) {
	t.Parallel()
	b := newWriteBench(t)
	jane := &resource.User{Name: "jane"}
	if w := b.sendAs(jane, "POST", inDefault+"configmaps", runtime.ContentTypeJSON, strings.NewReader(largeMap("a"))); w.Code != http.StatusCreated {
		t.Fatalf("got %d %.300s", w.Code, w.Body)
	}
	patch := func() int {
		return b.sendAs(jane, "PATCH", configMapA, mergePatch, strings.NewReader(`{"data":{"k":"v"}}`)).Code
	}
	other := b.api.decoding.Hold(&resource.User{Name: "other"})
	if err := other.Grow(body.DecodeMemory * 7 / 10); err != nil {
		t.Fatal(err)
	}
	if code := patch(); code != http.StatusTooManyRequests {
		t.Errorf("without memory, got %d", code)
	}
	other.Release()
	if code := patch(); code != http.StatusOK {
		t.Errorf("with memory, got %d", code)
	}
	if n := b.api.decoding.InUse(); n != 0 {
		t.Errorf("%d bytes are held", n)
	}
}

// Senders of endless bodies use memory up to a bound; other users can still send ordinary
// bodies.
func TestMemoryForReading(t *testing.T) {
	t.Parallel()
	b := newWriteBench(t)
	const senders = 60
	arrived := strings.Repeat(" ", 2<<20)
	var all, sent sync.WaitGroup
	var codes [senders]int
	end := make(chan struct{})
	for i := range senders {
		all.Add(1)
		sent.Add(1)
		go func() {
			defer all.Done()
			body := io.MultiReader(strings.NewReader(arrived), readerFunc(func([]byte) (int, error) {
				sent.Done()
				<-end
				return 0, io.EOF
			}))
			codes[i] = b.sendAs(&resource.User{Name: fmt.Sprint(i % 8)}, "POST", inDefault+"configmaps", runtime.ContentTypeJSON, body).Code
		}()
	}
	sent.Wait()
	if n := b.api.reading.InUse(); n > body.ReadMemory || n == 0 {
		t.Errorf("%d bytes are held", n)
	}
	if w := b.sendAs(&resource.User{Name: "jane"}, "POST", inDefault+"configmaps", runtime.ContentTypeJSON, strings.NewReader(`{"metadata":{"name":"small"}}`)); w.Code != http.StatusCreated {
		t.Errorf("a small body got %d %s", w.Code, w.Body)
	}
	close(end)
	all.Wait()
	refused := 0
	for _, code := range codes {
		if code == http.StatusTooManyRequests {
			refused++
		} else if code != http.StatusBadRequest {
			t.Errorf("got %d", code)
		}
	}
	if refused == 0 || refused == senders {
		t.Errorf("%d were refused", refused)
	}
	if n := b.api.reading.InUse(); n != 0 {
		t.Errorf("%d bytes are held", n)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
