package gateway

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"portico/gateway/flow"
	"portico/resource/serve"
)

// The pages for operators answer as kube-apiserver's do: as text, and the first two as
// objects on request; the log level and the logs only if they are enabled.
func TestDebugPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	folder := filepath.Join(dir, "logs")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"logs/gateway.log": "a line", "secret": "no log"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "secret"), filepath.Join(folder, "link")); err != nil {
		t.Fatal(err)
	}
	level := ""
	g := &Gateway{flow: flow.New(flow.Config{}), cfg: Config{Flags: map[string]string{"listen": ":0"}, Profiling: true, LogsDir: folder, SetVerbosity: func(v string) error {
		if level = v; v == "many" {
			return errors.New("bad level")
		}
		return nil
	}}}
	if err := g.openLogs(); err != nil {
		t.Fatal(err)
	}
	routed := func(g *Gateway) http.Handler {
		engine := serve.NewEngine()
		for pattern, page := range g.debugPages() {
			engine.Any(pattern, gin.WrapH(page))
		}
		return engine
	}
	on, off := routed(g), routed(&Gateway{flow: g.flow})
	ask := func(h http.Handler, method, path, accept, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		if accept != "" {
			r.Header.Set("Accept", accept)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for _, tc := range []struct {
		method, path, accept, body string
		code                       int
		text                       string
	}{
		{"GET", "/statusz", "", "", 200, "apiserver statusz"},
		{"GET", "/statusz", "application/xml, */*", "", 200, "Binary version"},
		{"GET", "/statusz", "application/yaml;v=v1beta1;g=config.k8s.io;as=Statusz", "", 200, "emulationVersion: \"1."},
		{"GET", "/statusz", "application/json;v=v1alpha1;g=config.k8s.io;as=Statusz", "", 200, "v1alpha1"},
		{"GET", "/statusz", "application/json", "", 406, "application/yaml"},
		{"GET", "/flagz", "text/plain", "", 200, "listen"},
		{"PUT", "/debug/flags/v", "", "4", 200, "successfully set klog.logging.verbosity to 4"},
		{"PUT", "/debug/flags/v", "", "many", 400, "bad level"},
		{"PUT", "/debug/flags/v", "", strings.Repeat("1", 100), 400, ""},
		{"GET", "/debug/flags/v", "", "", 406, "unsupported http method"},
		{"GET", "/debug/flags/", "", "", 200, "v<br>"},
		{"GET", "/logs/", "", "", 200, "gateway.log"},
		{"GET", "/logs/gateway.log", "", "", 200, "a line"},
		{"GET", "/logs/../secret", "", "", 404, ""},
	} {
		if w := ask(on, tc.method, tc.path, tc.accept, tc.body); w.Code != tc.code || !strings.Contains(w.Body.String(), tc.text) {
			t.Errorf("%s %s: %d %s", tc.method, tc.path, w.Code, w.Body)
		}
	}
	if w := ask(on, "GET", "/logs/link", "", ""); w.Code == 200 || strings.Contains(w.Body.String(), "no log") {
		t.Errorf("a link out of the folder: %d %s", w.Code, w.Body)
	}
	ask(on, "PUT", "/debug/flags/v", "", "2")
	if level != "2" {
		t.Errorf("the level is %q", level)
	}
	var object struct {
		Kind, APIVersion string
		Flags            map[string]string
	}
	w := ask(on, "GET", "/flagz", "application/json;v=v1beta1;g=config.k8s.io;as=Flagz", "")
	if err := json.Unmarshal(w.Body.Bytes(), &object); err != nil || object.Kind != "Flagz" || object.APIVersion != "config.k8s.io/v1beta1" || object.Flags["listen"] != ":0" {
		t.Errorf("flagz as an object: %v %s", err, w.Body)
	}
	for _, path := range []string{"/debug/flags/v", "/logs/", "/logs"} {
		if w := ask(off, "GET", path, "", ""); w.Code != 404 {
			t.Errorf("%s, switched off: %d", path, w.Code)
		}
	}
}
