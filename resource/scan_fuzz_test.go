package resource

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// decoded is the decoded header of an object.
type decoded struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
}

// sameHeader compares the scanned header with the decoded one.
func sameHeader(t *testing.T, o *Object, d *decoded) {
	t.Helper()
	h := o.Header
	if h.APIVersion != d.APIVersion || h.Kind != d.Kind || h.Name != d.Name || h.Namespace != d.Namespace || h.UID != string(d.UID) ||
		h.Generation != d.Generation || !sameLabels(h.Labels, d.Labels) || !slices.Equal(h.Finalizers, d.Finalizers) {
		t.Fatalf("%q: scanned as\n%+v, decoded as\n%+v", o.Data, h, d)
	}
	if d.ResourceVersion != "" && d.ResourceVersion != "0" && h.Revision == 0 {
		t.Fatalf("%q: resourceVersion %q scanned as 0", o.Data, d.ResourceVersion)
	}
	if o.Terminating() != !d.DeletionTimestamp.IsZero() || o.Terminating() && h.DeletionTime().Unix() != d.DeletionTimestamp.Unix() {
		t.Fatalf("%q: deletion scanned as %v, decoded as %v", o.Data, h.DeletionTime(), d.DeletionTimestamp)
	}
	var owners []Owner
	for _, w := range d.OwnerReferences {
		owners = append(owners, Owner{
			APIVersion: w.APIVersion, Kind: w.Kind, Name: w.Name, UID: string(w.UID),
			Controller: w.Controller != nil && *w.Controller, BlockDeletion: w.BlockOwnerDeletion != nil && *w.BlockOwnerDeletion,
		})
	}
	if !slices.Equal(h.Owners, owners) {
		t.Fatalf("%q: owners scanned as %+v, decoded as %+v", o.Data, h.Owners, owners)
	}
}

func sameLabels(l Labels, decoded map[string]string) bool {
	for key, value := range decoded {
		if got, ok := l.Lookup(key); !ok || got != value || l.Get(key) != value || !l.Has(key) {
			return false
		}
	}
	return len(l) == len(decoded) && !l.Has("none such")
}

// decodeHeader decodes the header; false if the decoder rejects the object.
func decodeHeader(t *testing.T, o *Object) (*decoded, bool) {
	t.Helper()
	d := &decoded{}
	if o.Encoding == JSON {
		if !json.Valid(o.Data) {
			t.Fatalf("accepted invalid JSON %q", o.Data)
		}
		return d, kjson.UnmarshalCaseSensitivePreserveInts(o.Data, d) == nil
	}
	var whole corev1.ConfigMap
	if whole.Unmarshal(o.Message()) != nil {
		return nil, false
	}
	d.ObjectMeta = whole.ObjectMeta
	d.TypeMeta = metav1.TypeMeta{APIVersion: o.APIVersion, Kind: o.Kind} // no part of the message
	return d, true
}

func seeds(f *testing.F) {
	for _, data := range encodings(f, sample()) {
		f.Add(data)
		o, err := Parse(data)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(o.WithRevision(1234).Data)
	}
	for _, text := range []string{
		`{"kind":"A","apiVersion":"v1","metadata":{"name":"n","resourceVersion":"4","labels":{"a":"b"}},"spec":[1,-2.5e+3,true,null,"\u00fc"]}`,
		`{"metadata":{ "name":"a" , "resourceVersion" : "12" }}`,
		`{}`,
		`{"Metadata":{"Name":"b"},"metadata":{"name":"a","NAME":"c"}}`,
		`{"metadata":{"name":"\ud83d\ude00\ud83d","uid":"\xff","n\u0061mespace":"x"}}`,
		`{"metadata":{"labels":{"b":"","a":"b","c":"d","a":"c"},"finalizers":[],"ownerReferences":[{"uid":"1","controller":true,"x":{}},{}]}}`,
		`{"metadata":{"labels":null,"generation":-0,"deletionTimestamp":"2026-01-02T03:04:05.678+07:00"}}`,
		`{"metadata":{"resourceVersion":""}}`,
		"k8s\x00\n\x0f\n\x02v1\x12\tConfigMap\x12\x0c\n\n\n\x01n\x12\x00\x1a\x01s\"\x00\x1a\x00\"\x00",
		"k8s\x00\x12\x04\n\x02J\x00",
		"k8s\x00\x12\x06\n\x04J\x02\x08\x05",
	} {
		f.Add([]byte(text))
	}
}

// The header equals the decoded metadata: indexes, selectors and garbage collection use it.
func FuzzParse(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := Parse(data)
		if err != nil {
			return
		}
		if d, ok := decodeHeader(t, o); ok {
			sameHeader(t, o, d)
		}
	})
}

// Splicing a revision in and out changes nothing else.
func FuzzWithRevision(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		o, err := Parse(data)
		if err != nil {
			return
		}
		want := withoutRevision(t, o)
		for _, rev := range []int64{42, 1 << 60, 0, 7, 7, 0} {
			o = o.WithRevision(rev)
			again, err := Parse(o.Data)
			if err != nil {
				t.Fatalf("spliced bytes do not scan: %v\n%q\n%q", err, data, o.Data)
			}
			if again.layout != o.layout || again.Revision != rev || !reflect.DeepEqual(again.Header, o.Header) {
				t.Fatalf("spliced %q into %q", data, o.Data)
			}
			if got := withoutRevision(t, again); want != nil && !reflect.DeepEqual(got, want) {
				t.Fatalf("revision %d of %q changed it to %q", rev, data, o.Data)
			}
		}
		if !bytes.Equal(before, data) {
			t.Fatal("splicing changed the bytes it was given")
		}
	})
}

// withoutRevision returns the content of an object without its revision; nil if it cannot be
// decoded.
func withoutRevision(t *testing.T, o *Object) any {
	t.Helper()
	if o.Encoding == Protobuf {
		var whole corev1.ConfigMap
		if whole.Unmarshal(o.Message()) != nil {
			return nil
		}
		whole.ResourceVersion = ""
		return whole
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(o.Data, &all); err != nil {
		t.Fatalf("%v in %q", err, o.Data)
	}
	metadata := map[string]json.RawMessage{}
	if raw, ok := all["metadata"]; ok {
		if err := json.Unmarshal(raw, &metadata); err != nil {
			t.Fatalf("%v in %q", err, raw)
		}
	}
	delete(all, "metadata")
	delete(metadata, "resourceVersion")
	return [2]map[string]json.RawMessage{all, metadata}
}
