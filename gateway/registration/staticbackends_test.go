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
	"portico/discovery"
	"portico/discovery/sources"
	"portico/gateway/routing"
	"portico/gateway/upstream"
	"portico/resource"
	"portico/resource/rest"
)

// A gateway that starts with a static Backend and one that does not register it alike, whether
// or not a user has removed its label.
func TestGatewaysAgreeOnStaticBackends(t *testing.T) {
	serves := []discovery.GroupVersion{{Group: "a.example.com", Version: "v1"}, {Group: "apps", Version: "v1"}}
	for name, labels := range map[string]map[string]string{"automanaged": {apiservice.AutomanagedLabel: apiservice.OnStart}, "taken over": nil} {
		object := &backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: "crd", Labels: labels}, Spec: backend.Spec{
			Endpoints: []backend.Endpoint{{URL: "unix:///theirs"}}, AutoRegister: &backend.AutoRegister{Groups: []string{backend.AllGroups}, GroupPriorityMinimum: new(int32(2000))},
		}}
		other := &backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: backend.Spec{
			Endpoints: []backend.Endpoint{{URL: "unix:///other"}}, AutoRegister: &backend.AutoRegister{Groups: []string{backend.AllGroups}, GroupPriorityMinimum: new(int32(3000))},
		}}
		source := sources.NewSource(sources.Config{Previous: serves})
		registered := func(own ...*routing.StaticBackend) (map[string]string, upstream.Policy) {
			g := newRegistry(t, nil)
			g.startsWith(t, own...)
			g.world.SetBackends([]*backend.Backend{object, other})
			g.world.Reconcile()
			g.world.serves("crd", source)
			g.world.serves("other", source)
			all := g.found.BackendStates()
			want, _ := g.claimed(all).desired(nil)
			out := map[string]string{}
			for name, a := range want {
				out[name] = a.Annotations[apiservice.BackendAnnotation] + " " + a.Labels[apiservice.AutomanagedLabel]
			}
			return out, all.ByName["crd"].Server.Up.Policy()
		}
		mine, sends := registered(onSocket(t, "crd", "/mine"))
		theirs, sendsToo := registered()
		if !reflect.DeepEqual(mine, theirs) || sends != sendsToo {
			t.Errorf("%s: the gateway that starts with it registers %v and sends by %+v, another %v by %+v", name, mine, sends, theirs, sendsToo)
		}
		// A static Backend precedes those of users; without the label the priority decides.
		want := "crd " + apiservice.Managed
		if labels == nil {
			want = "other " + apiservice.Managed
		}
		if mine["v1.a.example.com"] != want {
			t.Errorf("%s: %v", name, mine)
		}
	}
}

// The object of a static Backend follows its CA file.
func TestConfiguredCAFileIsFollowed(t *testing.T) {
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
		c, err := routing.NewStaticBackend(routing.Backend{Name: "core", URL: "https://core.internal:7443", CAFile: file}, upstream.Trust{})
		if err != nil {
			t.Fatal(err)
		}
		g := newRegistry(t, nil)
		g.startsWith(t, c)
		introduced := func() (bundle []byte, revision string) {
			t.Helper()
			g.readBackends(t)
			if err := g.storeStaticBackends(t.Context(), g.found.BackendStates()); err != nil {
				t.Fatal(err)
			}
			b := storedBackends(t, g.backends)[0]
			return b.Spec.TLS.CABundle, b.ResourceVersion
		}
		bundle, _ := introduced()
		if !bytes.Equal(bundle, first) {
			t.Fatalf("stored %s", bundle)
		}
		write(second)
		time.Sleep(time.Minute) // the file is read as often
		if bundle, _ := introduced(); !bytes.Equal(bundle, second) {
			t.Error("the object has the authorities of before")
		}
		bundle, revision := introduced()
		if again, same := introduced(); same != revision || !bytes.Equal(again, bundle) {
			t.Error("it is written again although nothing changed")
		}
		if _, err := rest.Modify(t.Context(), g.backends, resource.Key{Name: "core"}, func(b *backend.Backend) error { b.Labels = nil; b.Spec.TLS.CABundle = first; return nil }); err != nil {
			t.Fatal(err)
		}
		if bundle, _ := introduced(); !bytes.Equal(bundle, first) {
			t.Error("a user's Backend was changed")
		}
	})
}
