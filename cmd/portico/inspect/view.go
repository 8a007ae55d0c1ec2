package inspect

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/cmd/internal/pki"
	"portico/cmd/portico/client"
	"portico/gateway/installation"
	"portico/resource"
	"portico/resource/authn"
	"portico/resource/etcd"
)

// Paths of lists.
const (
	APIServicesPath = "/apis/" + apiservice.Group + "/v1/apiservices"
	BackendsPath    = "/apis/" + backend.Group + "/" + backend.Version + "/backends"
)

// View is what a gateway tells of an installation. What could not be read is zero, and in
// Unread.
type View struct {
	// Installation is nil if it could not be read.
	Installation *installation.Report
	// Failed are the checks of /readyz that fail, and Warnings its warnings.
	Failed, Warnings []string
	// Metrics are those of the gateway, and of the core and CRD server on this machine.
	Metrics  Metrics
	APIs     []apireg.APIService
	Backends []backend.Backend
	// Terminating are the namespaces that are being deleted.
	Terminating []corev1.Namespace
	Unread      []Unread
}

// Unread is something that could not be read.
type Unread struct {
	What string `json:"what"`
	Why  string `json:"why"`
	// Unauthorized: the gateway does not know the user. Forbidden: the user may not.
	Unauthorized bool `json:"unauthorized,omitempty"`
	Forbidden    bool `json:"forbidden,omitempty"`
}

// socketTimeout bounds a request to a server on this machine.
const socketTimeout = 2 * time.Second

// Read asks the gateway for everything at the same time. folder is nil unless the
// processes of the installation run there.
func Read(ctx context.Context, from *client.Client, folder *Folder) *View {
	v := &View{Metrics: Metrics{}}
	var mu sync.Mutex
	var reads sync.WaitGroup
	read := func(what string, f func() error) {
		reads.Go(func() {
			if err := f(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				v.Unread = append(v.Unread, Unread{what, err.Error(), apierrors.IsUnauthorized(err), apierrors.IsForbidden(err)})
			}
		})
	}
	metrics := func(text []byte) error {
		mu.Lock()
		defer mu.Unlock()
		return v.Metrics.Add(text)
	}
	read("installation", func() error {
		var i installation.Report
		if err := from.Send(ctx, http.MethodGet, installation.Path, nil, nil, &i); err != nil {
			return err
		}
		v.Installation = &i
		return nil
	})
	read("metrics", func() error {
		text, err := from.Get(ctx, "/metrics", nil)
		if err != nil {
			return err
		}
		return metrics(text)
	})
	read("readiness", func() error { return v.readiness(ctx, from) })
	read("APIs", func() error {
		var list apireg.APIServiceList
		err := from.Send(ctx, http.MethodGet, APIServicesPath, FromMemory(), nil, &list)
		v.APIs = list.Items
		return err
	})
	read("namespaces", func() error {
		var list corev1.NamespaceList
		query := FromMemory()
		query.Set("fieldSelector", "status.phase="+string(corev1.NamespaceTerminating))
		if from.Send(ctx, http.MethodGet, "/api/v1/namespaces", query, nil, &list) == nil { // the rest says why not
			v.Terminating = list.Items
		}
		return nil
	})
	read("Backends", func() error {
		var list backend.BackendList
		err := from.Send(ctx, http.MethodGet, BackendsPath, FromMemory(), nil, &list)
		v.Backends = list.Items
		return err
	})
	if folder != nil {
		for _, name := range []string{"core", "crd"} {
			read("metrics of "+name, func() error {
				text, err := Ask(ctx, folder, name, "/metrics")
				if err != nil {
					return err
				}
				return metrics(text)
			})
		}
	}
	reads.Wait()
	slices.SortFunc(v.Unread, func(a, b Unread) int { return strings.Compare(a.What, b.What) })
	return v
}

// FromMemory returns the query of a read that needs no etcd: it is answered while that is away.
func FromMemory() url.Values { return url.Values{"resourceVersion": {"0"}} }

// Read reports whether something was read.
func (v *View) Read(what string) bool {
	return !slices.ContainsFunc(v.Unread, func(u Unread) bool { return u.What == what })
}

// readiness reads the lines of /readyz?verbose, which are there too if it fails.
func (v *View) readiness(ctx context.Context, from *client.Client) error {
	text, err := from.Get(ctx, "/readyz", url.Values{"verbose": {""}})
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "[-]"); ok {
			name, _, _ = strings.Cut(name, " ")
			v.Failed = append(v.Failed, name)
		}
		if warning, ok := strings.CutPrefix(line, "warn: "); ok {
			v.Warnings = append(v.Warnings, warning)
		}
	}
	if len(v.Failed) > 0 {
		return nil
	}
	return err
}

// Answered reports whether the gateway answered anything.
func (v *View) Answered() bool {
	return v.Installation != nil || len(v.Metrics) > 0 || len(v.Failed) > 0 || v.APIs != nil || v.Backends != nil ||
		slices.ContainsFunc(v.Unread, func(u Unread) bool { return u.Forbidden || u.Unauthorized })
}

// elections are those of a whole installation.
var elections = []string{"controllers", "crd", "garbage-collector", "gateway", "service-repair"}

// WithoutLeader returns the elections that have none; nothing if that is not known.
func WithoutLeader(r *etcd.Report) (names []string) {
	for _, name := range elections {
		if r.Error == "" && !slices.ContainsFunc(r.Elections, func(e etcd.Election) bool { return e.Name == name }) {
			names = append(names, name)
		}
	}
	return names
}

// maxAnswer bounds the answer of a server on this machine, in bytes.
const maxAnswer = 64 << 20

// Ask sends a GET to the server of portico up that listens on a socket in the folder.
func Ask(ctx context.Context, folder *Folder, server, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, socketTimeout)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", folder.File("run", server+".sock"))
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+server+path, nil)
	if err != nil {
		return nil, err
	}
	// A peer of the same uid is trusted to name the user.
	authn.SetFrontProxyHeaders(req.Header, &resource.User{Name: pki.AdminName, Groups: []string{resource.GroupMasters}})
	answer, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read answer of %s: %w", server, err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", server, answer.Status)
	}
	return body, nil
}
