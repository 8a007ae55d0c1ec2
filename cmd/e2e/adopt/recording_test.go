package adopt

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/cmd/e2e/etcdprocess"
	"portico/internal/testing/await"
)

// recordingFile has the etcd of a kube-apiserver that was stopped, and what it served.
var recordingFile = filepath.Join("testdata", "kube-apiserver.json.gz")

// recording is what a kube-apiserver stored and served.
type recording struct {
	// Key signs the tokens of service accounts, in PEM.
	Key string `json:"key"`
	// Tokens are those of the service account adopted in the namespace default.
	Tokens []string `json:"tokens"`
	// Stored are the values in etcd by key.
	Stored map[string][]byte `json:"stored"`
	// Served are the objects by resource, namespace and name.
	Served contents `json:"served"`
}

// recorded is the form of an object in the recording.
type recorded struct {
	Resource schema.GroupVersionResource
	Object   map[string]any
}

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	return json.Marshal(recorded{o.GroupVersionResource, o.Object})
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *object) UnmarshalJSON(data []byte) error {
	var in recorded
	err := json.Unmarshal(data, &in)
	*o = object{in.Resource, &unstructured.Unstructured{Object: in.Object}}
	return err
}

// save writes the recording.
func (r *recording) save(t *testing.T) {
	t.Helper()
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	_, err = z.Write(data)
	if err := errors.Join(err, z.Close(), os.MkdirAll("testdata", 0o755), os.WriteFile(recordingFile, out.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// load reads the recording.
func load(t *testing.T) *recording {
	t.Helper()
	f, err := os.Open(recordingFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	r := &recording{}
	if err := json.NewDecoder(z).Decode(r); err != nil {
		t.Fatal(err)
	}
	return r
}

// connect returns a client of an etcd.
func connect(t *testing.T, etcd *etcdprocess.Process) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.Endpoint()}, DialTimeout: await.Patience()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// storedIn returns all values in an etcd by key.
func storedIn(t *testing.T, client *clientv3.Client) map[string][]byte {
	t.Helper()
	all, err := client.Get(t.Context(), "/registry/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	values := map[string][]byte{}
	for _, kv := range all.Kvs {
		values[string(kv.Key)] = kv.Value
	}
	return values
}
