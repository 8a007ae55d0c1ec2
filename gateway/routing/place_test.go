package routing

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/discovery"
)

// A user's APIService for another version of a group that the gateway serves is shown
// by its condition, and leads nowhere: also one that names a Service.
func TestOtherVersionsOfOwnGroups(t *testing.T) {
	const group = "rbac.authorization.k8s.io"
	for name, change := range map[string]func(*apireg.APIService){
		"at a Service": func(a *apireg.APIService) {
			a.Spec.Service = &apireg.ServiceReference{Namespace: "ns", Name: "api"}
		},
		"at a Backend": func(a *apireg.APIService) { a.Annotations = map[string]string{apiservice.BackendAnnotation: "b"} },
	} {
		a := &apireg.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v7." + group}, Spec: apireg.APIServiceSpec{
			Group: group, Version: "v7", GroupPriorityMinimum: 20000, VersionPriority: 1000,
		}}
		change(a)
		s := onService(t, a)
		s.own = []discovery.GroupVersion{{Group: group, Version: "v1"}}
		s.Reconcile()
		if c := s.Conditions()[a.Name]; c.Available() || !strings.Contains(c.Message, group+" is served by the gateway itself") {
			t.Errorf("%s: the condition is %+v", name, c)
		}
		if s.Table().Lookup(group, "v7") != nil || s.Discovery().Load().Serves("/apis/"+group+"/v7") {
			t.Errorf("%s: it is served", name)
		}
	}
}
