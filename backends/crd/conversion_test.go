package crd

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
	"portico/resource"
)

// hosts has spec.host and spec.port in v1, and spec.address for both in v1beta1, which is stored.
const hosts = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: hosts.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: hosts, kind: Host}
  conversion:
    strategy: Webhook
    webhook:
      conversionReviewVersions: [v1]
      clientConfig: {url: %q, caBundle: %q}
  versions:
  - name: v1
    served: true
    storage: false
    subresources: {status: {}}
    additionalPrinterColumns: [{name: Host, type: string, jsonPath: .spec.host}]
    selectableFields: [{jsonPath: .spec.host}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, required: [host], properties: {host: {type: string}, port: {type: integer, minimum: 1}}}
          status: {type: object, properties: {phase: {type: string}}}
  - name: v1beta1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {address: {type: string}}}
          status: {type: object, properties: {phase: {type: string}}}
  - name: v1alpha1
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

const (
	hostsV1   = "/apis/example.com/v1/namespaces/default/hosts"
	hostsBeta = "/apis/example.com/v1beta1/namespaces/default/hosts"
)

// converting is a conversion webhook for hosts, which counts its calls and objects.
type converting struct {
	calls, objects atomic.Int32
	// answer responds in place of the webhook; nil: it converts.
	answer atomic.Pointer[func(w http.ResponseWriter, review *apiextensionsv1.ConversionReview)]
}

func (c *converting) reply(answer func(w http.ResponseWriter, review *apiextensionsv1.ConversionReview)) {
	c.answer.Store(&answer)
}

func (c *converting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review apiextensionsv1.ConversionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.calls.Add(1)
	c.objects.Add(int32(len(review.Request.Objects)))
	if answer := c.answer.Load(); answer != nil && *answer != nil {
		(*answer)(w, &review)
		return
	}
	respond(w, &review)
}

// respond converts the objects of a review.
func respond(w http.ResponseWriter, review *apiextensionsv1.ConversionReview) {
	review.Response = &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, in := range review.Request.Objects {
		var object map[string]any
		if err := json.Unmarshal(in.Raw, &object); err != nil {
			panic(err)
		}
		convertHost(object, review.Request.DesiredAPIVersion)
		data, err := json.Marshal(object)
		if err != nil {
			panic(err)
		}
		review.Response.ConvertedObjects = append(review.Response.ConvertedObjects, runtime.RawExtension{Raw: data})
	}
	review.Request = nil
	_ = json.NewEncoder(w).Encode(review)
}

func convertHost(object map[string]any, apiVersion string) {
	object["apiVersion"] = apiVersion
	spec, ok := object["spec"].(map[string]any)
	if !ok {
		return
	}
	if address, ok := spec["address"].(string); ok && apiVersion == "example.com/v1" {
		host, port, _ := strings.Cut(address, ":")
		spec["host"], spec["port"] = host, json.Number(port)
		delete(spec, "address")
	}
	if host, ok := spec["host"].(string); ok && apiVersion == "example.com/v1beta1" {
		spec["address"] = fmt.Sprintf("%s:%v", host, spec["port"])
		delete(spec, "host")
		delete(spec, "port")
	}
}

// convertingHosts returns a server with the definition hosts and its webhook.
func convertingHosts(t *testing.T) (*Server, *converting) {
	t.Helper()
	s := over(t, memstore.New())
	return s, s.installConverting(t)
}

// installConverting installs the definition hosts and returns its webhook.
func (s *Server) installConverting(t *testing.T) *converting {
	t.Helper()
	hook := &converting{}
	web := httptest.NewUnstartedServer(hook)
	web.Config.ErrorLog = log.New(io.Discard, "", 0)
	web.StartTLS()
	t.Cleanup(web.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})
	s.install(t, fmt.Sprintf(hosts, web.URL+"/convert", base64.StdEncoding.EncodeToString(ca)))
	return hook
}

func hostBody(version, name, spec string) string {
	return "{apiVersion: example.com/" + version + ", kind: Host, metadata: {name: " + name + "}, spec: " + spec + "}"
}

// Each verb works in each version; what is stored has the storage version.
func TestConversionWebhook(t *testing.T) {
	t.Parallel()
	s, _ := convertingHosts(t)
	made := s.must(t, "POST", hostsV1, "", hostBody("v1", "a", "{host: example.org, port: 80}"))
	if at(made, "apiVersion") != "example.com/v1" || at(made, "spec", "host") != "example.org" {
		t.Errorf("created: %v", made)
	}
	if a := s.send(t, "POST", hostsV1, "", hostBody("v1", "b", "{host: example.org, port: 0}")); a.code != 422 {
		t.Errorf("an object that is invalid in the version of the request: %d %s", a.code, a.body)
	}
	if got := s.must(t, "GET", hostsBeta+"/a", "", ""); at(got, "spec", "address") != "example.org:80" || at(got, "metadata", "uid") != at(made, "metadata", "uid") {
		t.Errorf("in v1beta1: %v", got)
	}
	s.must(t, "PATCH", hostsV1+"/a", "application/merge-patch+json", `{"spec":{"port":81}}`)
	if got := s.must(t, "GET", hostsBeta+"/a", "", ""); at(got, "spec", "address") != "example.org:81" {
		t.Errorf("after a patch in v1: %v", got)
	}
	s.must(t, "PATCH", hostsV1+"/a?fieldManager=m&force=true", "application/apply-patch+yaml", hostBody("v1", "a", "{host: example.net}"))
	s.must(t, "PATCH", hostsBeta+"/a?fieldManager=n&force=true", "application/apply-patch+yaml", hostBody("v1beta1", "a", "{address: 'example.net:82'}"))
	s.must(t, "PATCH", hostsV1+"/a/status", "application/merge-patch+json", `{"status":{"phase":"up"}}`)
	got := s.must(t, "GET", hostsV1+"/a", "", "")
	if at(got, "spec", "host") != "example.net" || at(got, "spec", "port") != 82.0 || at(got, "status", "phase") != "up" {
		t.Errorf("after apply patches in both versions: %v", got)
	}
	before := at(got, "metadata", "resourceVersion")
	delete(got["metadata"].(map[string]any), "managedFields")
	put, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if again := s.must(t, "PUT", hostsV1+"/a", "application/json", string(put)); at(again, "metadata", "generation") != at(got, "metadata", "generation") {
		t.Errorf("an update without a change: %v, %v before", again["metadata"], before)
	}
	if list := s.must(t, "GET", hostsV1+"?fieldSelector=spec.host%3Dexample.net", "", ""); len(at(list, "items").([]any)) != 1 {
		t.Errorf("by a field of v1: %v", list)
	}
	if a := s.send(t, "GET", hostsV1, "", "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"); !strings.Contains(string(a.body), `"cells":["a","example.net"]`) {
		t.Errorf("table: %s", a.body)
	}
	o, err := s.definitionOf("example.com", "hosts").rows["v1"].Store.Get(t.Context(), resource.Key{Namespace: "default", Name: "a"}, resource.At{})
	if err != nil || o.APIVersion != "example.com/v1beta1" {
		t.Errorf("stored: %v, %v", o, err)
	}
	s.must(t, "DELETE", hostsV1+"/a", "", "")
}

// A list is converted by one call for many objects, and what was converted is kept for all
// readers.
func TestConversionsAreBatchedAndKept(t *testing.T) {
	t.Parallel()
	s, hook := convertingHosts(t)
	const objects = 120
	for i := range objects {
		s.must(t, "POST", hostsBeta, "", hostBody("v1beta1", fmt.Sprintf("h-%d", i), "{address: 'example.org:80'}"))
	}
	hook.calls.Store(0)
	for range 3 {
		if list := s.must(t, "GET", hostsV1, "", ""); len(at(list, "items").([]any)) != objects {
			t.Fatalf("got %d objects", len(at(list, "items").([]any)))
		}
	}
	if calls, converted := hook.calls.Load(), hook.objects.Load(); calls != 1 || converted != objects {
		t.Errorf("three lists took %d calls for %d objects, want 1 for %d", calls, converted, objects)
	}
	s.must(t, "GET", hostsV1+"/h-7", "", "")
	s.must(t, "GET", hostsBeta, "", "")
	if calls := hook.calls.Load(); calls != 1 {
		t.Errorf("%d calls for what was converted before, or is stored", calls-1)
	}
}

// A change is converted once for all watches of a version.
func TestConversionsOfWatches(t *testing.T) {
	t.Parallel()
	s, hook := convertingHosts(t)
	s.must(t, "POST", hostsBeta, "", hostBody("v1beta1", "a", "{address: 'example.org:80'}"))
	web := httptest.NewServer(http.HandlerFunc(s.asAdmin))
	t.Cleanup(web.Close)
	const watches, changes = 50, 5
	ports := make(chan float64, watches*(1+changes))
	var ready sync.WaitGroup
	ready.Add(watches)
	for range watches {
		go func() {
			res, err := http.Get(web.URL + hostsV1 + "?watch=true")
			if err != nil {
				t.Error(err)
				ready.Done()
				return
			}
			defer res.Body.Close()
			for n, events := 0, json.NewDecoder(res.Body); n <= changes; n++ {
				var event struct{ Object map[string]any }
				if err := events.Decode(&event); err != nil {
					t.Error(err)
					return
				}
				if n == 0 {
					ready.Done()
				}
				port, _ := at(event.Object, "spec", "port").(float64)
				ports <- port
			}
		}()
	}
	ready.Wait()
	hook.calls.Store(0)
	hook.objects.Store(0)
	for i := range changes {
		s.must(t, "PATCH", hostsBeta+"/a", "application/merge-patch+json", fmt.Sprintf(`{"spec":{"address":"example.org:%d"}}`, 81+i))
	}
	sum := 0.0
	for range watches * (1 + changes) {
		select {
		case port := <-ports:
			sum += port
		case <-time.After(await.Patience()):
			t.Fatal("a watch lacks an event")
		}
	}
	if want := float64(watches * (80 + 81 + 82 + 83 + 84 + 85)); sum != want {
		t.Errorf("the ports in the events add up to %v, want %v", sum, want)
	}
	if calls, objects := hook.calls.Load(), hook.objects.Load(); objects != changes || calls > changes {
		t.Errorf("%d changes for %d watches took %d calls for %d objects", changes, watches, calls, objects)
	}
}

// A webhook that breaks the protocol costs the versions that it converts a Status that names
// it, and nothing else.
func TestBrokenConversionWebhooks(t *testing.T) {
	t.Parallel()
	s, hook := convertingHosts(t)
	s.must(t, "POST", hostsBeta, "", hostBody("v1beta1", "a", "{address: 'example.org:80'}"))
	s.must(t, "POST", hostsBeta, "", hostBody("v1beta1", "b", "{address: 'example.org:80'}"))
	rewrite := func(change func(*apiextensionsv1.ConversionReview)) func(http.ResponseWriter, *apiextensionsv1.ConversionReview) {
		return func(w http.ResponseWriter, review *apiextensionsv1.ConversionReview) {
			r := httptest.NewRecorder()
			respond(r, review)
			var answer apiextensionsv1.ConversionReview
			if err := json.Unmarshal(r.Body.Bytes(), &answer); err != nil {
				panic(err)
			}
			change(&answer)
			_ = json.NewEncoder(w).Encode(&answer)
		}
	}
	replace := func(old, with string) func(http.ResponseWriter, *apiextensionsv1.ConversionReview) {
		return rewrite(func(r *apiextensionsv1.ConversionReview) {
			for i, o := range r.Response.ConvertedObjects {
				r.Response.ConvertedObjects[i].Raw = []byte(strings.Replace(string(o.Raw), old, with, 1))
			}
		})
	}
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *apiextensionsv1.ConversionReview)
		want   string
	}{
		"another UID": {rewrite(func(r *apiextensionsv1.ConversionReview) { r.Response.UID = "x" }), `expected response.uid=`},
		"too few":     {rewrite(func(r *apiextensionsv1.ConversionReview) { r.Response.ConvertedObjects = nil }), "returned 0 objects, expected"},
		"failure": {rewrite(func(r *apiextensionsv1.ConversionReview) {
			r.Response.Result = metav1.Status{Status: "Failure", Message: "not today"}
		}), "failed: not today"},
		"another kind":    {replace(`"kind":"Host"`, `"kind":"Guest"`), "invalid kind (expected Host, received Guest)"},
		"another version": {replace("example.com/v1", "example.com/v2"), "invalid groupVersion (expected example.com/v1, received example.com/v2)"},
		"another name":    {replace(`"name":"`, `"name":"x`), "must have the same name"},
		"no metadata":     {replace(`"metadata"`, `"meta"`), "must have the same name"},
		"an error":        {func(w http.ResponseWriter, _ *apiextensionsv1.ConversionReview) { http.Error(w, "out of order", 500) }, "out of order"},
		"not JSON":        {func(w http.ResponseWriter, _ *apiextensionsv1.ConversionReview) { _, _ = io.WriteString(w, "<html>") }, "json parse error"},
		"100 MB": {func(w http.ResponseWriter, _ *apiextensionsv1.ConversionReview) {
			chunk := make([]byte, 1<<20)
			for range 100 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, "the response has more than"},
	} {
		hook.reply(c.answer)
		for _, path := range []string{hostsV1 + "/a", hostsV1} {
			a := s.send(t, "GET", path, "", "")
			if got := a.status(t); a.code != 500 || got.Reason != "" || !strings.Contains(got.Message, c.want) || !strings.HasPrefix(got.Message, "conversion webhook for example.com/v1") {
				t.Errorf("%s, GET %s: %d %s", name, path, a.code, a.body)
			}
		}
	}
	s.must(t, "GET", hostsBeta+"/a", "", "")
	s.must(t, "PATCH", hostsBeta+"/a", "application/merge-patch+json", `{"spec":{"address":"example.org:81"}}`)
	hook.reply(nil)
	if got := s.must(t, "GET", hostsV1+"/a", "", ""); at(got, "spec", "port") != 81.0 {
		t.Errorf("once the webhook works again: %v", got)
	}
}

// Metadata other than labels and annotations stays as it is stored.
func TestConversionKeepsMetadata(t *testing.T) {
	t.Parallel()
	s, hook := convertingHosts(t)
	made := s.must(t, "POST", hostsBeta, "", hostBody("v1beta1", "a", "{address: 'example.org:80'}"))
	hook.reply(func(w http.ResponseWriter, review *apiextensionsv1.ConversionReview) {
		for i, o := range review.Request.Objects {
			review.Request.Objects[i].Raw = []byte(strings.Replace(string(o.Raw), `"metadata":{`, `"metadata":{"generation":7,"finalizers":["x/y"],"labels":{"a":"b"},`, 1))
		}
		respond(w, review)
	})
	got := s.must(t, "GET", hostsV1+"/a", "", "")
	if at(got, "metadata", "finalizers") != nil || at(got, "metadata", "generation") != at(made, "metadata", "generation") || at(got, "metadata", "labels", "a") != "b" {
		t.Errorf("got %v", got["metadata"])
	}
}

// While a webhook hangs, other versions of the definition are served, and it can be deleted.
func TestHangingConversionWebhook(t *testing.T) {
	t.Parallel()
	s, hook := convertingHosts(t)
	s.must(t, "POST", hostsBeta, "", hostBody("v1beta1", "a", "{address: 'example.org:80'}"))
	release := make(chan struct{})
	hook.reply(func(http.ResponseWriter, *apiextensionsv1.ConversionReview) { <-release })
	answers := make(chan answer)
	const readers = 80 // more than may call the webhook
	for i := range readers {
		go func() { answers <- s.send(t, "POST", hostsV1, "", hostBody("v1", fmt.Sprintf("n-%d", i), "{host: h}")) }()
	}
	for range readers - 64 {
		if a := <-answers; a.code != 429 || !strings.Contains(string(a.body), "64 calls have not been answered yet") {
			t.Errorf("%d %s", a.code, a.body)
		}
	}
	s.must(t, "GET", hostsBeta+"/a", "", "")
	s.must(t, "DELETE", definitionPath+"/hosts.example.com", "", "")
	await.Until(t, "the definition is gone", func() bool { return s.send(t, "GET", definitionPath+"/hosts.example.com", "", "").code == 404 })
	close(release)
	for range 64 {
		select {
		case <-answers:
		case <-time.After(await.Patience()):
			t.Fatal("a request of the webhook does not end")
		}
	}
}

// After a change of the storage version objects of both versions are read in each version, and
// a write stores the new one.
func TestConversionAfterAChangeOfTheStorageVersion(t *testing.T) {
	t.Parallel()
	s, _ := convertingHosts(t)
	s.must(t, "POST", hostsBeta, "", hostBody("v1beta1", "old", "{address: 'example.org:80'}"))
	s.must(t, "PATCH", definitionPath+"/hosts.example.com", "application/json-patch+json",
		`[{"op":"replace","path":"/spec/versions/0/storage","value":true},{"op":"replace","path":"/spec/versions/1/storage","value":false}]`)
	await.Until(t, "v1 is stored", func() bool { return s.definitionOf("example.com", "hosts").rows["v1"].StorageVersion == "v1" })
	s.must(t, "POST", hostsBeta, "", hostBody("v1beta1", "new", "{address: 'example.org:81'}"))
	for _, name := range []string{"old", "new"} {
		if got := s.must(t, "GET", hostsV1+"/"+name, "", ""); at(got, "spec", "host") != "example.org" {
			t.Errorf("%s in v1: %v", name, got["spec"])
		}
		if got := s.must(t, "GET", hostsBeta+"/"+name, "", ""); at(got, "spec", "address") == nil {
			t.Errorf("%s in v1beta1: %v", name, got["spec"])
		}
	}
	stored := func(name string) string {
		o, err := s.definitionOf("example.com", "hosts").rows["v1"].Store.Get(t.Context(), resource.Key{Namespace: "default", Name: name}, resource.At{})
		if err != nil {
			t.Fatal(err)
		}
		return o.APIVersion
	}
	if stored("old") != "example.com/v1beta1" || stored("new") != "example.com/v1" {
		t.Errorf("stored: old %s, new %s", stored("old"), stored("new"))
	}
	s.must(t, "PATCH", hostsBeta+"/old", "application/merge-patch+json", `{}`)
	if stored("old") != "example.com/v1" {
		t.Errorf("an empty patch left %s", stored("old"))
	}
	versions := at(s.must(t, "GET", definitionPath+"/hosts.example.com", "", ""), "status", "storedVersions")
	if fmt.Sprint(versions) != "[v1beta1 v1]" {
		t.Errorf("storedVersions: %v", versions)
	}
}
