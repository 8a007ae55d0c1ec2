package client_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/client"
	"portico/resource/memory"
	"portico/resource/rest"
	"portico/resource/storetest"
)

// jsonCodec serves objects of any shape.
type jsonCodec struct{}

func (jsonCodec) Decode(data []byte, _ string, gvk schema.GroupVersionKind, _ bool) (runtime.Object, []error, error) {
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &u.Object); err != nil {
		return nil, nil, err
	}
	u.SetGroupVersionKind(gvk)
	return u, nil, nil
}

func (c jsonCodec) DecodeStored(o *resource.Object) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	return u, json.Unmarshal(o.Data, &u.Object)
}

func (jsonCodec) EncodeStored(obj runtime.Object) (*resource.Object, error) {
	data, err := json.Marshal(obj.(*unstructured.Unstructured).Object)
	if err != nil {
		return nil, err
	}
	o, err := resource.Parse(data)
	if err != nil {
		return nil, err
	}
	return o.WithRevision(0), nil
}

func (jsonCodec) Encode(obj runtime.Object, _ schema.GroupVersionKind, _ string) ([]byte, error) {
	return json.Marshal(obj.(*unstructured.Unstructured).Object)
}

func (jsonCodec) StrategicMerge(schema.GroupVersionKind) runtime.Object { return nil }

// serve starts a server of one resource, kept in memory, and returns its store
// over HTTP.
func serve(t *testing.T, info *resource.Info) resource.Store {
	api := rest.New(rest.Config{Resources: []*rest.Resource{{
		Kind: &rest.Kind{
			Info: *info, Codec: jsonCodec{}, ReturnDeleted: true,
			Strategy: rest.Strategy{ValidateName: func(string, bool) []string { return nil }},
		},
		Store: memory.New().Store(info),
	}}})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		act := resource.ParseAction(r)
		act.User = &resource.User{Name: "tester"}
		api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return client.New(client.Config{BaseURL: server.URL, Transport: server.Client().Transport}).Store(info)
}

func TestConformance(t *testing.T) { storetest.Run(t, serve) }
