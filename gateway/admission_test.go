package gateway

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/gateway/proxy"
	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/admission"
	"portico/resource/rest"
)

// What happens to writes while the server that keeps webhooks and policies cannot
// be reached, or none is registered.
func TestWritesWhileConfigurationsAreAway(t *testing.T) {
	t.Parallel()
	masters := &resource.User{Name: "m", Groups: []string{resource.GroupMasters}}
	jane := &resource.User{Name: "jane", Groups: []string{resource.GroupAuthenticated}}
	type want int
	const (
		asked want = iota
		passes
		refused
	)
	for name, c := range map[string]struct {
		registered, routed, available, read bool
		group                               string
		user                                *resource.User
		want                                want
	}{
		"known and there":                       {true, true, true, true, "rbac.authorization.k8s.io", jane, asked},
		"known and there, masters repair":       {true, true, true, true, backend.Group, masters, asked},
		"known and away":                        {true, true, false, true, "rbac.authorization.k8s.io", jane, asked},
		"known and away, a Backend":             {true, true, false, true, backend.Group, jane, asked},
		"known and away, masters repair":        {true, true, false, true, backend.Group, masters, passes},
		"known and away, masters register":      {true, true, false, true, apiservice.Group, masters, passes},
		"known and away, masters grant":         {true, true, false, true, "rbac.authorization.k8s.io", masters, asked},
		"known and without a route":             {true, false, false, true, "rbac.authorization.k8s.io", jane, asked},
		"known and not registered any more":     {false, false, false, true, "rbac.authorization.k8s.io", jane, asked},
		"never read and there":                  {true, true, true, false, "rbac.authorization.k8s.io", jane, asked},
		"never read and away":                   {true, true, false, false, "rbac.authorization.k8s.io", jane, refused},
		"never read and away, masters grant":    {true, true, false, false, "rbac.authorization.k8s.io", masters, refused},
		"never read and away, masters repair":   {true, true, false, false, backend.Group, masters, passes},
		"never read and away, a Backend":        {true, true, false, false, backend.Group, jane, refused},
		"never read, registered and not routed": {true, false, false, false, apiservice.Group, jane, refused},
		"no server registered":                  {false, false, false, false, "rbac.authorization.k8s.io", jane, passes},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOwnAdmission(t, c.read)
			o.registered = func(string) bool { return c.registered }
			o.route = func(string) *proxy.Route {
				switch {
				case !c.routed:
					return nil
				case c.available:
					return &proxy.Route{Local: true}
				}
				return &proxy.Route{Name: "v1.admissionregistration.k8s.io"}
			}
			a := &rest.Attributes{Kind: &rest.Kind{Info: resource.Info{Group: c.group, Resource: "things"}}, Operation: rest.Create, Action: &resource.Action{User: c.user}}
			got, err := o.asks(a)
			switch {
			case got != (c.want == asked), (err != nil) != (c.want == refused):
				t.Errorf("asked %v, %v", got, err)
			case err != nil && (!apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "system:masters may write APIServices and Backends")):
				t.Errorf("refused with %v", err)
			}
		})
	}
}

// newOwnAdmission knows configurations, of which there are none, if they are read.
func newOwnAdmission(t *testing.T, read bool) *ownAdmission {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	kept := memstore.New()
	engine, err := admission.NewEngine(admission.EngineConfig{Transport: http.DefaultTransport, Source: func(i *resource.Info) (resource.Store, rest.Codec) { return kept.Store(i), nil }, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	o := &ownAdmission{engine: engine, namespaces: admission.NewNamespaceStates(kept.Store(&resource.Info{Versions: []string{"v1"}, Resource: "namespaces", Kind: "Namespace"}), log), log: log}
	if read {
		running(t, engine.Run)
		await.Until(t, "configurations are read", func() bool { return engine.Ready() == nil })
	}
	return o
}

// Namespaces are looked up where a server of them is registered; one that cannot
// be asked refuses, and where there never was any, none is asked for.
func TestNamespacesOfOwnKinds(t *testing.T) {
	t.Parallel()
	o := newOwnAdmission(t, false)
	o.registered = func(string) bool { return false }
	if got, err := o.lookupNamespace(t.Context(), "n", true); err != nil || !got.Exists {
		t.Errorf("without a server of namespaces: %+v, %v", got, err)
	}
	o.registered = func(string) bool { return true }
	if got, err := o.lookupNamespace(t.Context(), "n", true); err != nil || got.Exists {
		t.Errorf("of a server without that namespace: %+v, %v", got, err)
	}
	o.namespaces = admission.NewNamespaceStates(nil, o.log)
	if _, err := o.lookupNamespace(t.Context(), "n", true); err == nil {
		t.Error("of a server that cannot be asked there is no error")
	}
}
