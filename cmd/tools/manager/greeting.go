package main

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var groupVersion = schema.GroupVersion{Group: "demo.example.com", Version: "v1"}

// Greeting is the custom resource: a text that shall be in a ConfigMap.
type Greeting struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              GreetingSpec   `json:"spec"`
	Status            GreetingStatus `json:"status,omitempty"`
}

// GreetingSpec is the desired state of a Greeting.
type GreetingSpec struct {
	Text string `json:"text"`
}

// GreetingStatus is how far it has come.
type GreetingStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	ConfigMap          string             `json:"configMap,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// GreetingList is a list of them.
type GreetingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Greeting `json:"items"`
}

// DeepCopyObject implements [runtime.Object].
func (g *Greeting) DeepCopyObject() runtime.Object {
	out := *g
	out.ObjectMeta = *g.ObjectMeta.DeepCopy()
	out.Status.Conditions = slices.Clone(g.Status.Conditions)
	return &out
}

// DeepCopyObject implements [runtime.Object].
func (l *GreetingList) DeepCopyObject() runtime.Object {
	out := &GreetingList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*Greeting))
	}
	return out
}

func addToScheme(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(groupVersion, &Greeting{}, &GreetingList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
}
