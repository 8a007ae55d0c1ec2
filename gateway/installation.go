package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"

	"portico/resource/etcd"
	"portico/resource/masterlease"
	"portico/resource/response"
	"portico/resource/serve/version"
)

// InstallationPath is where an Installation is read. It needs the right to get the non-resource
// path.
const InstallationPath = "/debug/installation"

// Installation is what one gateway sees of the processes of an installation, for people.
type Installation struct {
	// Instance is the gateway that answers, and Started when it started.
	Instance string    `json:"instance"`
	Version  string    `json:"version"`
	Started  time.Time `json:"started"`
	// Gateways are the addresses of gateways that run with --advertise-address.
	Gateways []string `json:"gateways"`
	// Servers are the core and the CRD server, by the one that answers.
	Servers []Server    `json:"servers"`
	Etcd    etcd.Report `json:"etcd"`
}

// Server is a process behind the gateway.
type Server struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Error is why the version is not known.
	Error string `json:"error,omitempty"`
}

const (
	// serverTimeout bounds the question for the version of a server.
	serverTimeout = 2 * time.Second
	// maxVersion bounds the answer, in bytes.
	maxVersion = 64 << 10
)

// serversBehind are group/versions that only the core and the CRD server have.
var serversBehind = []struct {
	name string
	gv   schema.GroupVersion
}{
	{"core", schema.GroupVersion{Version: "v1"}},
	{"crd", schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}},
}

// installation answers a GET of InstallationPath.
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
func (g *Gateway) describe(ctx context.Context, started time.Time) *Installation {
	i := &Installation{Instance: g.cfg.InstanceID, Version: version.Info().GitVersion, Started: started, Servers: make([]Server, len(serversBehind))}
	var asked sync.WaitGroup
	asked.Go(func() { i.Etcd = g.etcd.Report(ctx) })
	asked.Go(func() { i.Gateways = g.gateways(ctx) })
	for at, s := range serversBehind {
		asked.Go(func() {
			i.Servers[at].Name = s.name
			var err error
			if i.Servers[at].Version, err = g.versionOf(ctx, s.gv); err != nil {
				i.Servers[at].Error = err.Error()
			}
		})
	}
	asked.Wait()
	return i
}

// gateways returns the addresses of gateways that renewed their leases; none if etcd does not
// answer, which Etcd says.
func (g *Gateway) gateways(ctx context.Context) (addresses []string) {
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	leases, _ := masterlease.New(g.etcd.Store).List(ctx)
	for _, at := range leases {
		addresses = append(addresses, at.String())
	}
	return addresses
}

// versionOf asks the server of a group/version.
func (g *Gateway) versionOf(ctx context.Context, gv schema.GroupVersion) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	rt := g.sync.Table().Lookup(gv.Group, gv.Version)
	if rt == nil || rt.Local {
		return "", fmt.Errorf("no server is registered for %s", gv)
	}
	if err := rt.Unavailable(); err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, loopbackURL+"/version", nil)
	if err != nil {
		return "", err
	}
	identifyGateway(req.Header)
	answer, err := rt.Upstream.RoundTrip(req)
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("no answer within %v", serverTimeout)
	case err != nil:
		return "", err
	}
	defer answer.Body.Close()
	var v apiversion.Info
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxVersion)).Decode(&v); err != nil {
		return "", fmt.Errorf("%s: %w", answer.Status, err)
	}
	return v.GitVersion, nil
}
