package gateway

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strings"

	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/statusz"
	"k8s.io/component-base/compatibility"

	"portico/resource/serve/version"
)

// Pages for operators, at the paths that kube-apiserver has them: /statusz and /flagz
// (KEP 4827 and 4828), /debug/flags/v, which sets the log level, and /logs/.

// debugPages returns the handlers of these pages by path.
func (g *Gateway) debugPages() map[string]http.Handler {
	pages := g.zpages()
	if g.cfg.Profiling {
		pages["/debug/flags"] = http.HandlerFunc(listDebugFlags)
		pages["/debug/flags/*flag"] = debugFlag(g.cfg.SetVerbosity)
	}
	maps.Copy(pages, g.flow.Pages())
	if g.logs != nil {
		files := http.StripPrefix("/logs", http.FileServerFS(g.logs.FS()))
		pages["/logs"], pages["/logs/*file"] = http.RedirectHandler("/logs/", http.StatusMovedPermanently), files
	}
	return pages
}

// openLogs opens the folder of /logs/. Links that lead out of it are not followed.
func (g *Gateway) openLogs() (err error) {
	if g.cfg.LogsDir == "" {
		return nil
	}
	if g.logs, err = os.OpenRoot(g.cfg.LogsDir); err != nil {
		return fmt.Errorf("open folder of logs: %w", err)
	}
	return nil
}

// zpages returns the handlers of /statusz and /flagz. The component is named apiserver, as in
// kube-apiserver.
func (g *Gateway) zpages() map[string]http.Handler {
	pages := pageMux{}
	statusz.Install(pages, "apiserver", statusz.NewRegistry(compatibility.NewEffectiveVersionFromString(version.Info().GitVersion, "", ""),
		statusz.WithListedPaths([]string{"/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version"})))
	flagz.Install(pages, "apiserver", flags(g.cfg.Flags))
	return pages
}

// pageMux collects handlers by path for statusz.Install and flagz.Install.
type pageMux map[string]http.Handler

// Handle implements their mux.
func (p pageMux) Handle(path string, h http.Handler) { p[path] = h }

// flags implements flagz.Reader.
type flags map[string]string

func (f flags) GetFlagz() map[string]string { return f }

// maxVerbosity bounds the body of a PUT to /debug/flags/v, in bytes.
const maxVerbosity = 16

// debugFlag sets the log level by PUT.
func debugFlag(set func(level string) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Trim(strings.TrimPrefix(r.URL.Path, "/debug/flags"), "/") != "v" || set == nil {
			listDebugFlags(w, r)
			return
		}
		if r.Method != http.MethodPut {
			http.Error(w, "unsupported http method", http.StatusNotAcceptable)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxVerbosity))
		if err == nil {
			err = set(string(body))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprintf(w, "successfully set klog.logging.verbosity to %s\n", body)
	})
}

// listDebugFlags names the flags that can be set.
func listDebugFlags(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, "<html>\n<head><title>/debug/flags/</title></head>\n<body>\n/debug/flags/<br>\nflags:<br>\nv<br>\n</body>\n</html>\n")
}
