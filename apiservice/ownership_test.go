package apiservice

import (
	"testing"

	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

func TestOwnershipKnowsAPIServices(t *testing.T) {
	k, err := Kind()
	if err != nil {
		t.Fatal(err)
	}
	converter, err := k.Ownership()
	if err != nil {
		t.Fatal(err)
	}
	a := &apireg.APIService{}
	a.SetGroupVersionKind(k.GVK("v1"))
	if _, err := converter.ObjectToTyped(a); err != nil {
		t.Error(err)
	}
}
