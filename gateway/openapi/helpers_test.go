package openapi

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/discovery"
	"portico/gateway/routing"
	"portico/gateway/upstream"
)

// onSocket is a Backend that a gateway starts with.
func onSocket(t testing.TB, name, path string) *routing.StaticBackend {
	t.Helper()
	c, err := routing.NewStaticBackend(routing.Backend{Name: name, URLs: []string{"unix://" + path}}, upstream.Trust{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// custom is the APIService of a custom resource.
func custom(gv discovery.GroupVersion, backend string) *apireg.APIService {
	return &apireg.APIService{
		ObjectMeta: metav1.ObjectMeta{
			Name:        apiservice.Name(gv.Group, gv.Version),
			Labels:      map[string]string{apiservice.AutomanagedLabel: apiservice.Managed},
			Annotations: map[string]string{apiservice.BackendAnnotation: backend},
		},
		Spec: apireg.APIServiceSpec{
			Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: discovery.DefaultGroupPriority, VersionPriority: discovery.CustomVersionPriority,
		},
	}
}
