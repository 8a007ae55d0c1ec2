package proxy

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"portico/internal/testing/await"
)

// A request gets a whole 504 when its deadline passes, while its body is sent and while
// the server is silent. A server that breaks off does not complete an answer.
func TestDeadlineThroughTheProxy(t *testing.T) {
	t.Parallel()
	front := startChain(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("begin") {
			_, _ = io.WriteString(w, "begun")
			flush(w)
		}
		<-r.Context().Done()
	})
	for _, h2 := range []bool{false, true} {
		client := front.Client()
		if !h2 {
			config := client.Transport.(*http.Transport).TLSClientConfig.Clone()
			config.NextProtos = nil
			transport := &http.Transport{TLSClientConfig: config}
			client = &http.Client{Transport: transport, Timeout: await.Patience()}
			defer transport.CloseIdleConnections()
		}
		const path = shortPath + "?timeout=50ms"
		body, never := io.Pipe()
		time.AfterFunc(10*time.Second, func() { never.Close() })
		slow, _ := http.NewRequestWithContext(t.Context(), "POST", front.URL+path, io.MultiReader(strings.NewReader("x"), body))
		slow.ContentLength = 100
		unsaid, _ := http.NewRequestWithContext(t.Context(), "POST", front.URL+path, io.MultiReader(strings.NewReader("x"), body))
		waiting, _ := http.NewRequestWithContext(t.Context(), "GET", front.URL+path, nil)
		for name, r := range map[string]*http.Request{"a slow body": slow, "a body without length": unsaid, "a slow server": waiting} {
			res, err := client.Do(r)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			text, err := io.ReadAll(res.Body)
			if res.StatusCode != 504 || err != nil || !bytes.Contains(text, []byte(`"reason":"Timeout"`)) {
				t.Errorf("HTTP/%d: %s: %d %q, %v", res.ProtoMajor, name, res.StatusCode, text, err)
			}
		}
		begun, _ := http.NewRequestWithContext(t.Context(), "GET", front.URL+path+"&begin", nil)
		res, err := client.Do(begun)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(res.Body); err == nil || string(text) != "begun" {
			t.Errorf("an answer cut off: %q, %v", text, err)
		}
		res.Body.Close()
	}
}
