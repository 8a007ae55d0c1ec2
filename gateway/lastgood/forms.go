package lastgood

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/discovery"
	"portico/resource"
)

// documentFormat opens every packed document; one with another first byte is of
// another version of the gateway, and ignored.
const documentFormat = '1'

// maxUnpacked bounds an unpacked document, in bytes: both forms of the largest
// discovery that is accepted of a server.
const maxUnpacked = 64 << 20

// Pack makes the compact form of a document, which does not say when it was made. Equal
// values make equal bytes.
func Pack(v any) ([]byte, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode document: %w", err)
	}
	out := bytes.NewBuffer([]byte{documentFormat})
	z := gzip.NewWriter(out)
	if _, err = z.Write(plain); err == nil {
		err = z.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("compress document: %w", err)
	}
	return out.Bytes(), nil
}

// Unpack reads what Pack made.
func Unpack(data []byte, into any) error {
	if len(data) == 0 || data[0] != documentFormat {
		return errors.New("the document is of an unknown format")
	}
	z, err := gzip.NewReader(bytes.NewReader(data[1:]))
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

// Version is what a server said of a group/version, both forms.
type Version struct {
	Group      string                              `json:"group,omitempty"`
	Version    string                              `json:"version"`
	Legacy     []metav1.APIResource                `json:"legacy"`
	Aggregated []apidiscovery.APIResourceDiscovery `json:"aggregated"`
}

// Versions leaves out what was never known.
func Versions(gvs []discovery.GroupVersion) []Version {
	out := make([]Version, 0, len(gvs))
	for i := range gvs {
		if gv := &gvs[i]; !gv.Unknown {
			out = append(out, Version{gv.Group, gv.Version, gv.Legacy, gv.Aggregated})
		}
	}
	return out
}

// UnpackVersions reads a document of Versions.
func UnpackVersions(data []byte) ([]discovery.GroupVersion, error) {
	var kept []Version
	if err := Unpack(data, &kept); err != nil {
		return nil, err
	}
	out := make([]discovery.GroupVersion, 0, len(kept))
	for _, k := range kept {
		if k.Version == "" {
			return nil, fmt.Errorf("group %q has a version without a name", k.Group)
		}
		for i := range k.Aggregated {
			completeKinds(&k.Aggregated[i])
		}
		out = append(out, discovery.GroupVersion{Group: k.Group, Version: k.Version, Legacy: k.Legacy, Aggregated: k.Aggregated})
	}
	return out, nil
}

// completeKinds makes sure that responseKind is an object everywhere: older
// clients crash on null (docs/wire.md 2.3).
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

// Services is what finding registered servers takes: the Services that
// APIServices name, without all that does not say where their servers are.
type Services struct {
	Services []corev1.Service            `json:"services"`
	Slices   []discoveryv1.EndpointSlice `json:"slices"`
}

// ServiceOf takes of a Service what resolving it needs.
func ServiceOf(s *corev1.Service) corev1.Service {
	out := corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name},
		Spec:       corev1.ServiceSpec{Type: s.Spec.Type, ExternalName: s.Spec.ExternalName},
	}
	for _, p := range s.Spec.Ports {
		out.Spec.Ports = append(out.Spec.Ports, corev1.ServicePort{Name: p.Name, Port: p.Port})
	}
	return out
}

// SliceOf takes of an EndpointSlice what resolving its Service needs.
func SliceOf(s *discoveryv1.EndpointSlice) discoveryv1.EndpointSlice {
	out := discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.Namespace, Name: s.Name,
		Labels: map[string]string{discoveryv1.LabelServiceName: s.Labels[discoveryv1.LabelServiceName]},
	}}
	for _, p := range s.Ports {
		out.Ports = append(out.Ports, discoveryv1.EndpointPort{Name: p.Name, Port: p.Port})
	}
	for _, e := range s.Endpoints {
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{
			Addresses: e.Addresses, Conditions: discoveryv1.EndpointConditions{Ready: e.Conditions.Ready},
		})
	}
	return out
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

// Object is an object of the gateway's own as it is stored.
type Object struct {
	Revision int64  `json:"revision"`
	Data     []byte `json:"data"`
}

// UnpackObjects reads a document of Objects.
func UnpackObjects(data []byte) ([]*resource.Object, error) {
	var kept []Object
	if err := Unpack(data, &kept); err != nil {
		return nil, err
	}
	out := make([]*resource.Object, 0, len(kept))
	for _, k := range kept {
		o, err := resource.Parse(k.Data)
		if err != nil {
			return nil, fmt.Errorf("read object: %w", err)
		}
		out = append(out, o.WithRevision(k.Revision))
	}
	return out, nil
}
