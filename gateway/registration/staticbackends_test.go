package registration

import (
	"bytes"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/gateway/routing"
	"portico/gateway/upstream"
)

// Static Backends are stored before their APIServices, and again after they were deleted. The elected
// gateway restores their addresses, and a user may take them over by removing the label.
func TestStaticBackendsAreStored(t *testing.T) {
	const mine, theirs = "unix:///absent/crd", "unix:///another/host"
	g := newRegistry(t, widgets())
	g.leadership.set(ended())
	g.sync(t, nil)
	stored := listed[*backend.Backend](t, g.backends)
	if len(stored) != 1 || stored[0].Name != "crd" || stored[0].Labels[apiservice.AutomanagedLabel] != apiservice.OnStart || g.stored(t)[widget] == nil {
		t.Fatalf("stored %+v", stored)
	}
	if errs := backend.Validate(stored[0]); len(errs) > 0 {
		t.Errorf("the stored Backend is not valid: %v", errs)
	}
	move := func(b *backend.Backend) {
		b.Spec.Endpoints[0].URL = theirs
		b.Spec.Balance = backend.RoundRobin
	}
	// is compares the address that is stored and the one that requests go to.
	is := func(when, wantStored, wantUsed string, generation int64) {
		t.Helper()
		g.sync(t, nil)
		b, up := listed[*backend.Backend](t, g.backends)[0], g.state("crd").Server.Up
		if b.Spec.Endpoints[0].URL != wantStored || b.Generation != generation || up.Endpoints()[0].URL != wantUsed || up.Policy().Balance != backend.RoundRobin {
			t.Errorf("%s: stored %s of generation %d, used %s, balance %s", when, b.Spec.Endpoints[0].URL, b.Generation, up.Endpoints()[0].URL, up.Policy().Balance)
		}
	}
	modify(t, g.backends, "crd", move)
	is("changed, before the election", theirs, mine, 1)
	g.leadership.set(t.Context())
	is("changed, elected", mine, mine, 2)
	modify(t, g.backends, "crd", func(b *backend.Backend) { b.Labels = nil; move(b) })
	is("taken over", theirs, theirs, 2)
	g.drop(t, "crd")
	if g.sync(t, nil); len(listed[*backend.Backend](t, g.backends)) != 1 {
		t.Error("a deleted static Backend is not stored again")
	}
}

// A gateway that starts with a static Backend and one that does not register it alike, whether or not a
// user has removed its label. Without the label the priority decides.
func TestGatewaysAgreeOnStaticBackends(t *testing.T) {
	gvs := append(serving("a.example.com", "v1"), serving("apps", "v1")...)
	for name, c := range map[string]struct {
		labels map[string]string
		want   string
	}{
		"automanaged": {map[string]string{apiservice.AutomanagedLabel: apiservice.OnStart}, "crd " + apiservice.Managed},
		"taken over":  {nil, "other " + apiservice.Managed},
	} {
		registered := func(own ...*routing.StaticBackend) (map[string]string, upstream.Policy) {
			g := newRegistry(t, nil)
			g.startsWith(t, own...)
			object := func(name string, labels map[string]string, priority int32) *backend.Backend {
				return &backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: backend.Spec{
					Endpoints: []backend.Endpoint{{URL: "unix:///" + name}}, AutoRegister: everything("", priority),
				}}
			}
			g.findings.SetBackends([]*backend.Backend{object("crd", c.labels, 2000), object("other", nil, 3000)})
			g.findings.Reconcile()
			g.serves("crd", gvs)
			g.serves("other", gvs)
			want, _ := g.claimed(g.found.BackendStates()).desired(nil)
			out := map[string]string{}
			for name, a := range want {
				out[name] = holder(a) + " " + a.Labels[apiservice.AutomanagedLabel]
			}
			return out, g.state("crd").Server.Up.Policy()
		}
		mine, sends := registered(onSocket(t, "crd", "/mine"))
		theirs, sendsToo := registered()
		if !reflect.DeepEqual(mine, theirs) || sends != sendsToo || mine["v1.a.example.com"] != c.want {
			t.Errorf("%s: the gateway that starts with it registers %v and sends by %+v, another %v by %+v", name, mine, sends, theirs, sendsToo)
		}
	}
}

// The object of a static Backend follows its CA file, unless a user took it over.
func TestCAFileIsFollowed(t *testing.T) {
	certificate := func() []byte {
		s := httptest.NewTLSServer(http.NotFoundHandler())
		defer s.Close()
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	}
	first := certificate()
	second := append(certificate(), first...)
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "ca.crt")
		write := func(data []byte) {
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(first)
		c, err := routing.NewStaticBackend(routing.Backend{Name: "core", URLs: []string{"https://core.internal:7443"}, CAFile: file}, upstream.Trust{})
		if err != nil {
			t.Fatal(err)
		}
		g := newRegistry(t, nil)
		g.startsWith(t, c)
		is := func(when string, want []byte, writes int64) {
			t.Helper()
			n := g.writes(func() {
				g.readBackends(t)
				if err := g.storeStaticBackends(t.Context(), g.found.BackendStates()); err != nil {
					t.Fatal(err)
				}
			})
			if got := listed[*backend.Backend](t, g.backends)[0].Spec.TLS.CABundle; n != writes || !bytes.Equal(got, want) {
				t.Errorf("%s: %d writes, the bundle is %s", when, n, got)
			}
		}
		is("at first", first, 1)
		write(second)
		time.Sleep(time.Minute) // the file is read as often
		is("changed", second, 1)
		is("unchanged", second, 0)
		modify(t, g.backends, "core", func(b *backend.Backend) { b.Labels = nil; b.Spec.TLS.CABundle = first })
		is("taken over", first, 0)
	})
}
