package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// do sends a request with a body in YAML and returns the response: an object, or the Status
// of an error.
func (b *bench) do(method, path, body string) (*unstructured.Unstructured, *metav1.Status) {
	b.t.Helper()
	data, err := yaml.YAMLToJSON([]byte(body))
	if err != nil {
		b.t.Fatal(err)
	}
	if body == "" {
		data = nil
	}
	r, err := http.NewRequestWithContext(context.Background(), method, b.URL+path, bytes.NewReader(data))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	if res.StatusCode >= 400 {
		status := &metav1.Status{}
		if err := json.Unmarshal(text, status); err != nil || int(status.Code) != res.StatusCode {
			b.t.Fatalf("%s %s: %d %s", method, path, res.StatusCode, text)
		}
		return nil, status
	}
	u := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(text, &u.Object); err != nil {
		b.t.Fatal(err)
	}
	return u, nil
}

// must is do for requests that succeed.
func (b *bench) must(method, path, body string) *unstructured.Unstructured {
	b.t.Helper()
	u, status := b.do(method, path, body)
	if status != nil {
		b.t.Fatalf("%s %s: %d %s", method, path, status.Code, status.Message)
	}
	return u
}

// refused is do for requests that fail with a message.
func (b *bench) refused(method, path, body string, code int32, message string) *metav1.Status {
	b.t.Helper()
	_, status := b.do(method, path, body)
	if status == nil {
		b.t.Fatalf("%s %s succeeded", method, path)
	}
	if status.Code != code || status.Message != message {
		b.t.Errorf("%s %s:\n %d %s, want\n %d %s", method, path, status.Code, status.Message, code, message)
	}
	return status
}

const (
	configMapsPath = "/api/v1/namespaces/default/configmaps"
	widgetsPath    = "/apis/example.com/v1/namespaces/default/widgets"
)

func configMap(name string) string {
	return `{apiVersion: v1, kind: ConfigMap, metadata: {name: ` + name + `}, data: {a: "1"}}`
}

func widget(name string) string {
	return `{apiVersion: example.com/v1, kind: Widget, metadata: {name: ` + name + `}, spec: {size: 1}}`
}

// text returns a string field of an object; "" where there is none.
func text(u *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(u.Object, path...)
	return s
}
