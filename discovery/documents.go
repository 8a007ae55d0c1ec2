package discovery

import (
	"bytes"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"sync"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"sigs.k8s.io/yaml"
)

// document is one discovery document. Each encoding and its ETag are made at the first request.
type document struct {
	json, yaml, protobuf func() ([]byte, error)
	tag, protobufTag     func() string
	// unknown: the server never answered, so requests get a 503. absent: the 503 says that no
	// server has it.
	unknown, absent bool
}

// newDocument returns the document of one object.
func newDocument(obj runtime.Object) *document {
	return lazyDocument(func() runtime.Object { return obj }, func() ([]byte, error) {
		data, err := json.Marshal(obj)
		if err != nil {
			return nil, fmt.Errorf("encode discovery document: %w", err)
		}
		return data, nil
	})
}

// joined returns the document of a list whose items are already encoded. empty is the list without
// items, which are its last member.
func joined(empty runtime.Object, whole func() runtime.Object, parts []*part, item func(*part) []byte) *document {
	return lazyDocument(whole, func() ([]byte, error) {
		frame, err := json.Marshal(empty)
		if err != nil {
			return nil, fmt.Errorf("encode discovery document: %w", err)
		}
		size := len(frame) + 1
		for _, p := range parts {
			size += len(item(p)) + 1
		}
		frame = bytes.TrimSuffix(frame, []byte("]}"))
		data := append(make([]byte, 0, size), frame...)
		for i, p := range parts {
			if i > 0 {
				data = append(data, ',')
			}
			data = append(data, item(p)...)
		}
		return append(data, "]}"...), nil
	})
}

// lazyDocument returns the document of an object; encode returns its JSON without the newline at the
// end.
func lazyDocument(object func() runtime.Object, encode func() ([]byte, error)) *document {
	d := &document{}
	d.json = sync.OnceValues(func() ([]byte, error) {
		plain, err := encode()
		if err != nil {
			return nil, err
		}
		return append(plain, '\n'), nil
	})
	d.yaml = sync.OnceValues(func() ([]byte, error) {
		data, err := d.json()
		if err != nil {
			return nil, err
		}
		return yaml.JSONToYAML(data)
	})
	d.protobuf = sync.OnceValues(func() ([]byte, error) { return encodeProtobuf(object()) })
	d.tag = sync.OnceValue(func() string {
		data, err := d.json()
		return digest(bytes.TrimSuffix(data, []byte("\n")), err)
	})
	d.protobufTag = sync.OnceValue(func() string { return digest(d.protobuf()) })
	return d
}

// etag returns the ETag of the JSON form: its SHA-512 in upper-case hex, quoted.
func (d *document) etag() string { return d.tag() }

// encoded returns the document in a media type, and its ETag if it has one.
func (d *document) encoded(media string) (data []byte, etag string, err error) {
	switch media {
	case mediaYAML:
		data, err = d.yaml()
		return data, "", err
	case mediaProtobuf:
		data, err = d.protobuf()
		return data, d.protobufTag(), err
	}
	data, err = d.json()
	return data, d.tag(), err
}

// digest returns the ETag of data; "" after an error.
func digest(data []byte, err error) string {
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%q", fmt.Sprintf("%X", sha512.Sum512(data)))
}

func encodeProtobuf(obj runtime.Object) ([]byte, error) {
	var buf bytes.Buffer
	// The objects name their kinds, so the serializer needs no scheme.
	if err := protobuf.NewSerializer(nil, nil).Encode(obj, &buf); err != nil {
		return nil, fmt.Errorf("encode discovery document: %w", err)
	}
	return buf.Bytes(), nil
}

func groupVersionDocument(gv *GroupVersion) *document {
	list := &metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.Name(), APIResources: gv.Legacy,
	}
	if gv.Group == "" {
		list.APIVersion = "" // docs/wire.md 2.1: absent for core
	}
	if list.APIResources == nil {
		list.APIResources = []metav1.APIResource{}
	}
	d := newDocument(list)
	d.unknown, d.absent = gv.Unknown, gv.Unknown && gv.Absent
	return d
}

// listedGroup returns the item of a group in /apis.
func listedGroup(versions []GroupVersion) metav1.APIGroup {
	g := metav1.APIGroup{Name: versions[0].Group}
	for i := range versions {
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: versions[i].Name(), Version: versions[i].Version})
	}
	g.PreferredVersion = g.Versions[0]
	return g
}

func groupList(parts []*part) *metav1.APIGroupList {
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	for _, p := range parts {
		list.Groups = append(list.Groups, listedGroup(p.versions))
	}
	return list
}

// aggregatedGroup returns the item of a group in the aggregated /apis.
func aggregatedGroup(versions []GroupVersion) apidiscovery.APIGroupDiscovery {
	g := apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: versions[0].Group}}
	for i := range versions {
		gv := &versions[i]
		g.Versions = append(g.Versions, apidiscovery.APIVersionDiscovery{Version: gv.Version, Resources: gv.Aggregated, Freshness: gv.freshness()})
	}
	return g
}

func aggregatedList(parts []*part) *apidiscovery.APIGroupDiscoveryList {
	list := &apidiscovery.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
		Items:    []apidiscovery.APIGroupDiscovery{},
	}
	for _, p := range parts {
		list.Items = append(list.Items, aggregatedGroup(p.versions))
	}
	return list
}
