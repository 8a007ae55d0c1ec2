package sources

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
)

// The kinds of discovery documents.
const (
	kindVersions  = "APIVersions"
	kindGroups    = "APIGroupList"
	kindResources = "APIResourceList"
	kindGroupsV2  = "APIGroupDiscoveryList"
	kindStatus    = "Status"
)

// maxMember bounds the members of a document that identify it, in bytes.
const maxMember = 1 << 10

var errNoObject = errors.New("not a JSON object")

// header are the members of a discovery document that identify it.
type header struct {
	metav1.TypeMeta
	groupVersion string
	hasArray     bool
}

func (a *answer) decodeList(kind, array string, item func(json.RawMessage) error) error {
	_, err := a.decodeArray(kind, array, item)
	return err
}

// decodeArray calls item for each element of one array of a discovery document. Elements are
// decoded one at a time, so that the caller can skip large ones; item must not keep its
// argument. A truncated answer ends within the array. An error means that the elements must
// be discarded.
func (a *answer) decodeArray(kind, array string, item func(json.RawMessage) error) (header, error) {
	var h header
	inArray, err := h.decode(json.NewDecoder(bytes.NewReader(a.body)), array, item)
	ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	switch {
	case err == nil, a.truncated && inArray && ended:
		return h, a.checkKind(kind, &h)
	case a.truncated:
		return h, &tooLargeError{a.url, int64(len(a.body))}
	}
	return h, fmt.Errorf("decode answer of %s: %w", a.url, err)
}

func (h *header) decode(dec *json.Decoder, array string, item func(json.RawMessage) error) (inArray bool, err error) {
	switch t, err := dec.Token(); {
	case err != nil:
		return false, errNoObject
	case t == nil:
		return false, nil // null is a document without members
	case t != json.Delim('{'):
		return false, errNoObject
	}
	var value json.RawMessage
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return false, err
		}
		if name == array {
			if inArray, err := h.decodeElements(dec, item); err != nil {
				return inArray, err
			}
			continue
		}
		if err := dec.Decode(&value); err != nil {
			return false, err
		}
		if err := h.member(name, value); err != nil {
			return false, err
		}
	}
	if _, err := dec.Token(); err != nil {
		return false, errNoObject
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return false, errNoObject
	}
	return false, nil
}

// decodeElements decodes the value of the array member; inArray reports that err is of an
// element.
func (h *header) decodeElements(dec *json.Decoder, item func(json.RawMessage) error) (inArray bool, err error) {
	switch t, err := dec.Token(); {
	case err != nil:
		return false, err
	case t == json.Delim('{'):
		return false, errors.New("the list is not a JSON array")
	case t != json.Delim('['):
		return false, nil
	}
	h.hasArray = true
	var element json.RawMessage
	for dec.More() {
		if err := dec.Decode(&element); err != nil {
			return true, err
		}
		if err := item(element); err != nil {
			return false, err
		}
	}
	_, err = dec.Token()
	return true, err
}

func (h *header) member(name json.Token, value []byte) error {
	var to *string
	switch name {
	case "kind":
		to = &h.Kind
	case "apiVersion":
		to = &h.APIVersion
	case "groupVersion":
		to = &h.groupVersion
	default:
		return nil
	}
	if len(value) > maxMember {
		return fmt.Errorf("%s is longer than %d bytes", name, maxMember)
	}
	if err := json.Unmarshal(value, to); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// checkKind returns an error if a document is not of a kind. {} decodes into any kind and
// lists nothing: a maintenance page of a proxy would remove all groups of its server.
//
// Servers made with upstream's library name the kind. A document without kind is accepted if
// it has the array of the kind: Go clients accept it too, and handwritten servers exist. The
// apiVersion is ignored: upstream omits it for the core group.
func (a *answer) checkKind(kind string, h *header) error {
	switch {
	case h.Kind == kind, h.Kind == "" && h.hasArray:
		return nil
	case slices.Contains([]string{kindVersions, kindGroups, kindResources, kindGroupsV2, kindStatus}, h.Kind):
		return fmt.Errorf("answer of %s is no %s but of kind %s", a.url, kind, h.Kind)
	}
	// The kind may be any text, and conditions are public.
	return fmt.Errorf("answer of %s is no %s", a.url, kind)
}

// countElements estimates how many elements a JSON text has.
func countElements(text []byte) int { return bytes.Count(text, []byte(",")) + 1 }

// decodeVersions decodes an APIVersions: the versions of the core group.
func (l *index) decodeVersions(a *answer, limits *Limits) error {
	return a.decodeList(kindVersions, "versions", func(item json.RawMessage) error {
		var version string
		err := json.Unmarshal(item, &version)
		l.add(schema.GroupVersion{Version: version}, limits)
		return err
	})
}

// decodeGroups decodes an APIGroupList.
func (l *index) decodeGroups(a *answer, limits *Limits) error {
	return a.decodeList(kindGroups, "groups", func(item json.RawMessage) error {
		if limits.exceededBy(item) {
			l.dropped++
			return nil
		}
		var g metav1.APIGroup
		if err := json.Unmarshal(item, &g); err != nil {
			return err
		}
		for _, v := range g.Versions {
			l.add(schema.GroupVersion{Group: g.Name, Version: v.Version}, limits)
		}
		return nil
	})
}

// decodeV2 decodes an APIGroupDiscoveryList. Of groups beyond the limits it keeps the names.
func (l *index) decodeV2(a *answer, limits *Limits) error {
	l.v2 = map[schema.GroupVersion]version{}
	memory := limits.Memory
	err := a.decodeList(kindGroupsV2, "items", func(item json.RawMessage) error {
		if memory <= 0 || limits.exceededBy(item) {
			return l.decodeNames(item, limits)
		}
		var g apidiscovery.APIGroupDiscovery
		if err := json.Unmarshal(item, &g); err != nil {
			return err
		}
		for _, v := range g.Versions {
			id := schema.GroupVersion{Group: g.Name, Version: v.Version}
			if !l.add(id, limits) {
				continue
			}
			if memory -= discovery.AggregatedSize(v.Resources); memory < 0 {
				l.truncated[id] = true
				continue
			}
			l.v2[id] = version{resources: complete(v.Resources), stale: v.Freshness == apidiscovery.DiscoveryFreshnessStale}
		}
		return nil
	})
	slices.SortFunc(l.ids, func(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) })
	return err
}

// decodeNames adds the names of the versions of a group that is too large to decode.
func (l *index) decodeNames(item []byte, limits *Limits) error {
	if len(item) > limits.Group || len(l.ids) >= limits.GroupVersions {
		l.dropped++
		return nil
	}
	var g struct {
		Metadata struct{ Name string }
		Versions []struct{ Version string }
	}
	if err := json.Unmarshal(item, &g); err != nil {
		return err
	}
	for _, v := range g.Versions {
		if id := (schema.GroupVersion{Group: g.Metadata.Name, Version: v.Version}); l.add(id, limits) {
			l.truncated[id] = true
		}
	}
	return nil
}

// decodeResources decodes the APIResourceList of one group/version up to the limits;
// truncated reports that there is more.
func (a *answer) decodeResources(gv schema.GroupVersion, limits *Limits) (list []metav1.APIResource, truncated bool, err error) {
	list = []metav1.APIResource{}
	elements, memory := limits.Elements, limits.Memory
	truncated = a.truncated
	d, err := a.decodeArray(kindResources, "resources", func(item json.RawMessage) error {
		if elements -= countElements(item); elements < 0 || memory < 0 {
			truncated = true
			return nil
		}
		var r metav1.APIResource
		err := json.Unmarshal(item, &r)
		list = append(list, r)
		memory -= discovery.LegacySize(list[len(list)-1:])
		return err
	})
	if err == nil && d.groupVersion != gv.String() {
		err = fmt.Errorf("%s describes %q", a.url, d.groupVersion)
	}
	if err != nil {
		return nil, false, err
	}
	// The first of two resources with one name counts.
	seen := make(map[string]bool, len(list))
	list = slices.DeleteFunc(list, func(r metav1.APIResource) bool {
		twice := seen[r.Name]
		seen[r.Name] = true
		return twice
	})
	discovery.SortLegacy(list)
	return list, truncated, nil
}

// complete sets responseKind wherever it is missing: older clients crash on null
// (docs/wire.md 2.3).
func complete(resources []apidiscovery.APIResourceDiscovery) []apidiscovery.APIResourceDiscovery {
	for i := range resources {
		if resources[i].ResponseKind == nil {
			resources[i].ResponseKind = &metav1.GroupVersionKind{}
		}
		for j := range resources[i].Subresources {
			if resources[i].Subresources[j].ResponseKind == nil {
				resources[i].Subresources[j].ResponseKind = &metav1.GroupVersionKind{}
			}
		}
	}
	if resources == nil {
		resources = []apidiscovery.APIResourceDiscovery{}
	}
	return resources
}
