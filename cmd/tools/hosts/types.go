package main

import (
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
)

const group = "hosts.example.com"

// Status is the status of a Host in every version: the address that each reconciler has seen.
type Status struct {
	Seen map[string]string `json:"seen,omitempty"`
}

// HostV1 is the hub.
type HostV1 struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              SpecV1 `json:"spec"`
	Status            Status `json:"status,omitempty"`
}

// SpecV1 is a name and a port.
type SpecV1 struct {
	Host string `json:"host,omitempty"`
	Port string `json:"port,omitempty"`
}

// HostV1beta1 has an address, host:port.
type HostV1beta1 struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Address string `json:"address,omitempty"`
	} `json:"spec"`
	Status Status `json:"status,omitempty"`
}

// HostV1alpha1 has a URL, http://host:port.
type HostV1alpha1 struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		URL string `json:"url,omitempty"`
	} `json:"spec"`
	Status Status `json:"status,omitempty"`
}

// Hosts is a list of a version.
type Hosts[T any] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []T `json:"items"`
}

// Hub implements [conversion.Hub].
func (h *HostV1) Hub() {}

// ConvertTo implements [conversion.Convertible].
func (h *HostV1beta1) ConvertTo(hub conversion.Hub) error {
	return toHub(hub.(*HostV1), h.ObjectMeta, h.address(), h.Status)
}

// ConvertFrom implements [conversion.Convertible].
func (h *HostV1beta1) ConvertFrom(hub conversion.Hub) error {
	from := hub.(*HostV1)
	h.ObjectMeta, h.Spec.Address, h.Status = from.ObjectMeta, from.address(), from.Status
	return nil
}

// ConvertTo implements [conversion.Convertible].
func (h *HostV1alpha1) ConvertTo(hub conversion.Hub) error {
	return toHub(hub.(*HostV1), h.ObjectMeta, h.address(), h.Status)
}

// ConvertFrom implements [conversion.Convertible].
func (h *HostV1alpha1) ConvertFrom(hub conversion.Hub) error {
	from := hub.(*HostV1)
	h.ObjectMeta, h.Status = from.ObjectMeta, from.Status
	if address := from.address(); address != "" {
		h.Spec.URL = "http://" + address
	}
	return nil
}

// toHub sets the hub. Server-side apply converts objects that have only some of their fields.
func toHub(hub *HostV1, meta metav1.ObjectMeta, address string, status Status) error {
	name, port, _ := strings.Cut(address, ":")
	hub.ObjectMeta, hub.Spec, hub.Status = meta, SpecV1{name, port}, status
	return nil
}

func (h *HostV1) address() string {
	if h.Spec == (SpecV1{}) {
		return ""
	}
	return h.Spec.Host + ":" + h.Spec.Port
}

func (h *HostV1beta1) address() string  { return h.Spec.Address }
func (h *HostV1alpha1) address() string { return strings.TrimPrefix(h.Spec.URL, "http://") }

func (h *HostV1) seen() *map[string]string       { return &h.Status.Seen }
func (h *HostV1beta1) seen() *map[string]string  { return &h.Status.Seen }
func (h *HostV1alpha1) seen() *map[string]string { return &h.Status.Seen }

// DeepCopyObject implements [runtime.Object].
func (h *HostV1) DeepCopyObject() runtime.Object {
	out := *h
	out.ObjectMeta, out.Status.Seen = *h.ObjectMeta.DeepCopy(), maps.Clone(h.Status.Seen)
	return &out
}

// DeepCopyObject implements [runtime.Object].
func (h *HostV1beta1) DeepCopyObject() runtime.Object {
	out := *h
	out.ObjectMeta, out.Status.Seen = *h.ObjectMeta.DeepCopy(), maps.Clone(h.Status.Seen)
	return &out
}

// DeepCopyObject implements [runtime.Object].
func (h *HostV1alpha1) DeepCopyObject() runtime.Object {
	out := *h
	out.ObjectMeta, out.Status.Seen = *h.ObjectMeta.DeepCopy(), maps.Clone(h.Status.Seen)
	return &out
}

// DeepCopyObject implements [runtime.Object].
func (l *Hosts[T]) DeepCopyObject() runtime.Object {
	out := &Hosts[T]{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		out.Items = append(out.Items, *any(any(&l.Items[i]).(runtime.Object).DeepCopyObject()).(*T))
	}
	return out
}

func addToScheme(scheme *runtime.Scheme) {
	for version, types := range map[string][2]runtime.Object{
		"v1": {&HostV1{}, &Hosts[HostV1]{}}, "v1beta1": {&HostV1beta1{}, &Hosts[HostV1beta1]{}}, "v1alpha1": {&HostV1alpha1{}, &Hosts[HostV1alpha1]{}},
	} {
		gv := schema.GroupVersion{Group: group, Version: version}
		scheme.AddKnownTypeWithName(gv.WithKind("Host"), types[0])
		scheme.AddKnownTypeWithName(gv.WithKind("HostList"), types[1])
		metav1.AddToGroupVersion(scheme, gv)
	}
}
