package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/gateway/installation"
	"portico/resource/identity"
	"portico/resource/response"
	"portico/resource/serve/version"
)

// serverTimeout bounds the request to a server.
const serverTimeout = 2 * time.Second

// serversBehind are group/versions that only the core and the CRD server have, and the post-start checks of
// kube-apiserver that these servers have.
var serversBehind = []struct {
	name   string
	gv     schema.GroupVersion
	checks []string
}{
	{"core", schema.GroupVersion{Version: "v1"}, []string{
		"poststarthook/bootstrap-controller", "poststarthook/start-system-namespaces-controller",
		"poststarthook/start-service-ip-repair-controllers", "poststarthook/scheduling/bootstrap-system-priority-classes",
		"poststarthook/start-legacy-token-tracking-controller",
	}},
	{"crd", schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}, []string{
		"poststarthook/start-apiextensions-informers", "poststarthook/start-apiextensions-controllers", "poststarthook/crd-informer-synced",
	}},
}

// installation answers a GET of installation.Path.
func (g *Gateway) installation(started time.Time) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			response.WriteStatus(w, r, apierrors.NewMethodNotSupported(schema.GroupResource{}, r.Method))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(g.describe(r.Context(), started)) // fails only if the client has gone
	})
}

// describe asks all processes at the same time.
func (g *Gateway) describe(ctx context.Context, started time.Time) *installation.Report {
	i := &installation.Report{Instance: g.cfg.InstanceID, Version: version.Info().GitVersion, Started: started, Time: time.Now(), Servers: make([]installation.Server, len(serversBehind))}
	var asked sync.WaitGroup
	asked.Go(func() { i.Etcd = g.etcd.Report(ctx) })
	asked.Go(func() { i.Processes = g.processes(ctx) })
	for at, s := range serversBehind {
		asked.Go(func() {
			i.Servers[at].Name = s.name
			if err := g.get(ctx, s.gv, "/version"); err != nil {
				i.Servers[at].Error = err.Error()
			}
		})
	}
	asked.Wait()
	return i
}

// processes returns all processes; none if etcd does not answer, which Etcd says.
func (g *Gateway) processes(ctx context.Context) []identity.Process {
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	all, err := identity.Open(g.etcd.Store).List(ctx)
	if err != nil {
		g.log.Debug("processes are not listed", "err", err)
	}
	return all
}

// get requests a path of the server of a group/version. An answer with another status than 200 is an error.
func (g *Gateway) get(ctx context.Context, gv schema.GroupVersion, path string) error {
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	rt := g.sync.Table().Lookup(gv.Group, gv.Version)
	if rt == nil || rt.Local {
		return fmt.Errorf("no server is registered for %s", gv)
	}
	if err := rt.Unavailable(); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, loopbackURL+path, nil)
	if err != nil {
		return err
	}
	identifyGateway(req.Header)
	// Pinned: the request takes no slot, and its answer does not count for or against an endpoint.
	answer, err := rt.Upstream.Pinned().RoundTrip(req)
	if err == nil {
		defer answer.Body.Close()
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("the server of %s did not answer within %v", gv, serverTimeout)
	case err != nil:
		return err
	}
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10)) // the status suffices if it cannot be read
		return fmt.Errorf("the server of %s answered %s: %q", gv, answer.Status, strings.TrimSpace(string(text)))
	}
	return nil
}
