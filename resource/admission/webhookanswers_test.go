package admission

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
)

// The failure policy applies to a webhook with an endless response, which takes bounded
// memory.
func TestEndlessAnswerOfWebhook(t *testing.T) {
	b, hook := newBench(t), &hookServer{}
	piece := bytes.Repeat([]byte("x"), 1<<16)
	hook.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for sent := 0; sent < 1<<30 && r.Context().Err() == nil; sent += len(piece) {
			_, _ = w.Write(piece)
		}
	}))
	t.Cleanup(hook.Close)
	b.configure(validatingHooks("hooks", validatingHook("a.example.com", hook)))
	var start, end runtime.MemStats
	runtime.ReadMemStats(&start)
	b.refused(http.MethodPost, configMapsPath, configMap("x"), http.StatusInternalServerError,
		`Internal error occurred: failed calling webhook "a.example.com": failed to call webhook: unexpected error when reading response body. `+
			`Please retry. Original error: the response has more than 8388608 bytes`)
	runtime.ReadMemStats(&end)
	if used := (end.TotalAlloc - start.TotalAlloc) >> 20; used > 100 {
		t.Errorf("the response took %d MB", used)
	}
}
