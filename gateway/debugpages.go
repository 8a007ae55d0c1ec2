package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource/response"
	"portico/resource/serve/version"
)

// Pages for operators, at the paths that kube-apiserver has them: /statusz and /flagz
// (KEP 4827 and 4828), /debug/flags/v, which sets the log level, and /logs/.

const zpageWarning = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only."

// debugPages returns the handlers of these pages by path.
func (g *Gateway) debugPages() map[string]http.Handler {
	pages := map[string]http.Handler{"/statusz": statusz(time.Now()), "/flagz": flagz(g.cfg.Flags)}
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

// zpage is a page as text and as an object of config.k8s.io/v1beta1.
type zpage struct {
	kind   string
	text   func(io.Writer)
	fields func() map[string]any
}

func (z *zpage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		response.WriteStatus(w, r, apierrors.NewMethodNotSupported(schema.GroupResource{}, r.Method))
		return
	}
	object, ok := z.negotiate(r.Header.Values("Accept"))
	switch {
	case !ok:
		response.WriteStatus(w, r, response.NotAcceptable("text/plain", "application/json;v=v1beta1;g=config.k8s.io;as="+z.kind))
	case object:
		fields := z.fields()
		fields["kind"], fields["apiVersion"] = z.kind, "config.k8s.io/v1beta1"
		fields["metadata"] = map[string]string{"name": "apiserver"}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(fields)
	default:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintf(w, "\napiserver %s\n%s\n\n", strings.ToLower(z.kind), zpageWarning)
		z.text(w)
	}
}

// negotiate reports whether the object is requested; ok is false if neither form is.
func (z *zpage) negotiate(accept []string) (object, ok bool) {
	header := strings.Join(accept, ",")
	if strings.TrimSpace(header) == "" {
		return false, true
	}
	for clause := range strings.SplitSeq(header, ",") {
		media, params, err := mime.ParseMediaType(clause)
		switch {
		case err != nil:
		case media == "*/*", media == "text/*", media == "text/plain":
			return false, true
		case media == "application/json" && params["as"] == z.kind && params["g"] == "config.k8s.io" && params["v"] == "v1beta1":
			return true, true
		}
	}
	return false, false
}

// statusz shows the version of the program and when it started.
func statusz(started time.Time) http.Handler {
	paths := []string{"/healthz", "/livez", "/metrics", "/readyz", "/version"}
	up := func() time.Duration { return time.Since(started).Truncate(time.Second) }
	v := version.Info()
	return &zpage{"Statusz", func(w io.Writer) {
		fmt.Fprintf(w, "Started: %s\nUp: %v\nGo version: %s\nBinary version: %s\nEmulation version: %s.%s\nPaths: %s\n",
			started.Format(time.UnixDate), up(), runtime.Version(), v.GitVersion, v.EmulationMajor, v.EmulationMinor, strings.Join(paths, " "))
	}, func() map[string]any {
		return map[string]any{
			"startTime": started.UTC().Format(time.RFC3339), "uptimeSeconds": int64(up().Seconds()), "goVersion": runtime.Version(),
			"binaryVersion": v.GitVersion, "emulationVersion": v.EmulationMajor + "." + v.EmulationMinor, "paths": paths,
		}
	}}
}

// flagz shows the flags that the process was started with.
func flagz(flags map[string]string) http.Handler {
	return &zpage{"Flagz", func(w io.Writer) {
		for _, name := range slices.Sorted(maps.Keys(flags)) {
			fmt.Fprintf(w, "%s=%s\n", name, flags[name])
		}
	}, func() map[string]any { return map[string]any{"flags": flags} }}
}

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
