package lastgood

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/discovery"
	"portico/resource"
)

// documentFormat is the first byte of every document. Documents with another one are of
// another version of the gateway, and ignored. A gzip file of JSON follows.
const documentFormat = '1'

// headerLength is the length of the format and the header of the gzip file, which contains
// the time (RFC 1952, 2.3).
const headerLength = 1 + 10

// maxUnpacked bounds the content of a document, in bytes: both forms of the largest
// discovery that is accepted from a server.
const maxUnpacked = 64 << 20

// Pack encodes the content of a document that is saved now. Equal values make documents
// that differ in their times only.
func Pack(v any) ([]byte, error) { return packAfter(v, nil) }

// packAfter is Pack for a document that replaces old, and is later than that whatever the
// clocks of gateways say.
func packAfter(v any, old []byte) ([]byte, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode document: %w", err)
	}
	out := bytes.NewBuffer([]byte{documentFormat})
	z := gzip.NewWriter(out)
	z.ModTime = time.Now()
	if before := savedAt(old); !z.ModTime.After(before.Add(time.Second)) {
		z.ModTime = before.Add(time.Second)
	}
	if _, err = z.Write(plain); err == nil {
		err = z.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("compress document: %w", err)
	}
	return out.Bytes(), nil
}

// open returns a reader of the content of a document.
func open(data []byte) (*gzip.Reader, error) {
	if len(data) == 0 || data[0] != documentFormat {
		return nil, errors.New("the document is of an unknown format")
	}
	return gzip.NewReader(bytes.NewReader(data[1:]))
}

// savedAt returns when a document was saved, in seconds; the zero time for an invalid one.
func savedAt(data []byte) time.Time {
	z, err := open(data)
	if err != nil {
		return time.Time{}
	}
	return z.ModTime
}

// same reports whether two documents have the same content.
func same(a, b []byte) bool {
	return len(a) > headerLength && len(b) > headerLength && bytes.Equal(a[headerLength:], b[headerLength:])
}

// Unpack decodes a document that Pack made.
func Unpack(data []byte, into any) error {
	z, err := open(data)
	if err != nil {
		return fmt.Errorf("decompress document: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(z, maxUnpacked+1))
	if err != nil {
		return fmt.Errorf("decompress document: %w", err)
	}
	if len(plain) > maxUnpacked {
		return fmt.Errorf("the document is larger than %d bytes", maxUnpacked)
	}
	if err := json.Unmarshal(plain, into); err != nil {
		return fmt.Errorf("decode document: %w", err)
	}
	return nil
}

// Version is the discovery of a group/version, in both forms.
type Version struct {
	Group      string                              `json:"group,omitempty"`
	Version    string                              `json:"version"`
	Legacy     []metav1.APIResource                `json:"legacy"`
	Aggregated []apidiscovery.APIResourceDiscovery `json:"aggregated"`
}

// Versions returns the saved form of group/versions, without those that are unknown.
func Versions(gvs []discovery.GroupVersion) []Version {
	out := make([]Version, 0, len(gvs))
	for i := range gvs {
		if gv := &gvs[i]; !gv.Unknown {
			out = append(out, Version{gv.Group, gv.Version, gv.Legacy, gv.Aggregated})
		}
	}
	return out
}

// GroupVersions is the inverse of Versions.
func GroupVersions(saved []Version) ([]discovery.GroupVersion, error) {
	out := make([]discovery.GroupVersion, 0, len(saved))
	for _, v := range saved {
		if v.Version == "" {
			return nil, fmt.Errorf("group %q has a version without a name", v.Group)
		}
		for i := range v.Aggregated {
			completeKinds(&v.Aggregated[i])
		}
		out = append(out, discovery.GroupVersion{Group: v.Group, Version: v.Version, Legacy: v.Legacy, Aggregated: v.Aggregated})
	}
	return out, nil
}

// completeKinds makes every responseKind an object: older clients crash on null
// (docs/wire.md 2.3).
func completeKinds(r *apidiscovery.APIResourceDiscovery) {
	if r.ResponseKind == nil {
		r.ResponseKind = &metav1.GroupVersionKind{}
	}
	for i := range r.Subresources {
		if r.Subresources[i].ResponseKind == nil {
			r.Subresources[i].ResponseKind = &metav1.GroupVersionKind{}
		}
	}
}

// Identities are the uids of namespaced objects: namespace, name, uid.
type Identities map[string]map[string]string

// Add adds the uid of an object.
func (k Identities) Add(namespace, name, uid string) {
	if k[namespace] == nil {
		k[namespace] = map[string]string{}
	}
	k[namespace][name] = uid
}

// Object is a stored object.
type Object struct {
	Revision int64  `json:"revision"`
	Data     []byte `json:"data"`
}

// UnpackObjects decodes a document of Objects.
func UnpackObjects(data []byte) ([]*resource.Object, error) {
	var saved []Object
	if err := Unpack(data, &saved); err != nil {
		return nil, err
	}
	out := make([]*resource.Object, 0, len(saved))
	for _, s := range saved {
		o, err := resource.Parse(s.Data)
		if err != nil {
			return nil, fmt.Errorf("read object: %w", err)
		}
		out = append(out, o.WithRevision(s.Revision))
	}
	return out, nil
}
