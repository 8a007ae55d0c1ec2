package conversion

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/cmd/e2e"
)

// definition is that of hosts of a group, with the clientConfig of its webhook. v1beta1 is
// stored.
const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: hosts.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {plural: hosts, kind: Host}
  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: %[2]s}}
  versions:
  - name: v1
    served: true
    storage: false
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    selectableFields: [{jsonPath: .spec.host}]
    additionalPrinterColumns: [{name: Host, type: string, jsonPath: .spec.host}]
    schema: {openAPIV3Schema: {type: object, properties: {
      spec: {type: object, required: [host], properties: {host: {type: string}, port: {type: integer, minimum: 1}, replicas: {type: integer}}},
      status: {type: object, properties: {replicas: {type: integer}}}}}}
  - name: v1beta1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.replicas}}
    schema: {openAPIV3Schema: {type: object, properties: {
      spec: {type: object, properties: {address: {type: string, pattern: ':'}, size: {type: integer}}},
      status: {type: object, properties: {replicas: {type: integer}}}}}}
  - name: v1alpha1
    served: true
    storage: false
    subresources: {status: {}, scale: {specReplicasPath: .spec.count, statusReplicasPath: .status.replicas}}
    schema: {openAPIV3Schema: {type: object, properties: {
      spec: {type: object, properties: {url: {type: string}, count: {type: integer}}},
      status: {type: object, properties: {replicas: {type: integer}}}}}}
`

// definitions is the path of definitions.
const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// versions are those of hosts.
var versions = []string{"v1", "v1beta1", "v1alpha1"}

// host is what each version says of a host.
type host struct {
	name     string
	port     int64
	replicas int64
}

// spec returns the spec of a version, as JSON.
func (h host) spec(version string) string {
	switch version {
	case "v1":
		return fmt.Sprintf(`{"host":%q,"port":%d,"replicas":%d}`, h.name, h.port, h.replicas)
	case "v1beta1":
		return fmt.Sprintf(`{"address":"%s:%d","size":%d}`, h.name, h.port, h.replicas)
	}
	return fmt.Sprintf(`{"url":"http://%s:%d","count":%d}`, h.name, h.port, h.replicas)
}

// hostOf returns what an object in any version says.
func hostOf(object []byte) (h host, err error) {
	var o struct {
		Spec struct {
			Host, Address, URL          string
			Port, Replicas, Size, Count int64
		}
	}
	if err := json.Unmarshal(object, &o); err != nil {
		return h, err
	}
	h = host{o.Spec.Host, o.Spec.Port, o.Spec.Replicas + o.Spec.Size + o.Spec.Count}
	if address := o.Spec.Address + strings.TrimPrefix(o.Spec.URL, "http://"); address != "" {
		name, port, _ := strings.Cut(address, ":")
		h.name = name
		h.port, err = strconv.ParseInt(port, 10, 64)
	}
	return h, err
}

// webhook converts hosts, and counts its calls and objects.
type webhook struct {
	*httptest.Server
	calls, objects atomic.Int64
	// answer responds in place of the webhook; nil: it converts.
	answer atomic.Pointer[http.HandlerFunc]
}

// newWebhook returns a webhook that is not started.
func newWebhook(t *testing.T) *webhook {
	t.Helper()
	hook := &webhook{}
	hook.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hook.calls.Add(1)
		if answer := hook.answer.Load(); answer != nil {
			(*answer)(w, r)
			return
		}
		review, err := convert(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		hook.objects.Add(int64(len(review.Response.ConvertedObjects)))
		_ = json.NewEncoder(w).Encode(review) // the client reports a failed write
	}))
	hook.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(hook.Close)
	return hook
}

// convert returns the answer to a review.
func convert(r *http.Request) (*apiextensionsv1.ConversionReview, error) {
	var review apiextensionsv1.ConversionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		return nil, err
	}
	review.Response = &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, in := range review.Request.Objects {
		data, err := convertObject(in.Raw, review.Request.DesiredAPIVersion)
		if err != nil {
			return nil, err
		}
		review.Response.ConvertedObjects = append(review.Response.ConvertedObjects, runtime.RawExtension{Raw: data})
	}
	review.Request = nil
	return &review, nil
}

func convertObject(data []byte, apiVersion string) ([]byte, error) {
	h, err := hostOf(data)
	if err != nil {
		return nil, err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil {
		return nil, err
	}
	_, version, _ := strings.Cut(apiVersion, "/")
	object["apiVersion"], object["spec"] = json.RawMessage(strconv.Quote(apiVersion)), json.RawMessage(h.spec(version))
	return json.Marshal(object)
}

// ca returns the caBundle of a started webhook.
func (hook *webhook) ca() string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}))
}

// hosts are the hosts of a group in the namespace default.
type hosts struct {
	*e2e.Installation
	group  string
	client *http.Client
}

// define creates the definition of hosts in a group and waits until they are served. hook must
// have been started.
func define(t *testing.T, up *e2e.Installation, group string, hook *webhook) *hosts {
	t.Helper()
	return defineFor(t, up, group, fmt.Sprintf("{url: %q, caBundle: %q}", hook.URL, hook.ca()))
}

// defineFor is define with a clientConfig.
func defineFor(t *testing.T, up *e2e.Installation, group, clientConfig string) *hosts {
	t.Helper()
	s := &hosts{up, group, e2e.HTTPClient(t, up.Config(t))}
	if code, answer := up.Do(t, http.MethodPost, definitions,
		fmt.Sprintf(definition, group, clientConfig), "Content-Type: application/yaml"); code != http.StatusCreated {
		t.Fatal(answer)
	}
	for _, v := range versions {
		e2e.Eventually(t, "hosts are served in "+v, func() error {
			if code, body := e2e.Get(t, s.client, up.Endpoint+s.path(v, ""), ""); code != http.StatusOK {
				return fmt.Errorf("%d %s", code, body)
			}
			return nil
		})
	}
	return s
}

// path returns the path of a host, or with "" of all of the namespace.
func (s *hosts) path(version, name string) string {
	path := "/apis/" + s.group + "/" + version + "/namespaces/default/hosts"
	if name != "" {
		path += "/" + name
	}
	return path
}

// body returns an object as JSON.
func (s *hosts) body(version, name string, h host) string {
	return fmt.Sprintf(`{"apiVersion":"%s/%s","kind":"Host","metadata":{"name":%q},"spec":%s}`, s.group, version, name, h.spec(version))
}

// must sends a request that succeeds, and returns the body of the response.
func (s *hosts) must(t *testing.T, method, path, body string, header ...string) string {
	t.Helper()
	resp, answer, err := e2e.Ask(t.Context(), s.client, method, s.Endpoint+path, body, header...)
	if err != nil || resp.StatusCode >= 300 {
		t.Fatalf("%s %s: %v %v", method, path, err, answer)
	}
	return answer
}

// expect checks a host in every version.
func (s *hosts) expect(t *testing.T, when, name string, want host) {
	t.Helper()
	for _, v := range versions {
		object := s.must(t, http.MethodGet, s.path(v, name), "")
		if got, err := hostOf([]byte(object)); err != nil || got != want || !strings.Contains(object, `"apiVersion":"`+s.group+"/"+v+`"`) {
			t.Errorf("%s, in %s: got %v %v, want %v: %s", when, v, got, err, want, object)
		}
	}
}
