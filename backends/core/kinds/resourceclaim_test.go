package kinds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/authz"
	"portico/resource/rest"
)

// Claims and templates ask for admin access to devices only in namespaces with the label that
// permits it; the allocation of a claim does not grant it elsewhere either.
func TestAdminAccessToDevicesNeedsTheLabelOfTheNamespace(t *testing.T) {
	t.Parallel()
	cfg := Config{NamespaceLabel: func(_ context.Context, namespace, label string) (string, error) {
		switch {
		case namespace == "absent":
			return "", errors.New("no namespace")
		case namespace == "admin" && label == "resource.kubernetes.io/admin-access":
			return "true", nil
		}
		return "", nil
	}, Permissions: Permissions{Authorize: func(context.Context, *resource.Action) error { return nil }}}
	for namespace, want := range map[string]string{
		"admin": "", "default": "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace",
		"absent": "could not retrieve namespace to verify admin access: no namespace",
	} {
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: namespace, ResourceVersion: "1"}}
		claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: "c", AllocationMode: resourcev1.DeviceAllocationModeAll, AdminAccess: new(true),
		}}}
		template := &resourcev1.ResourceClaimTemplate{ObjectMeta: claim.ObjectMeta, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: claim.Spec}}
		granted := claim.DeepCopy()
		granted.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "r", Driver: "d", Pool: "p", Device: "x", AdminAccess: new(true)},
		}}}
		claims, templates := rowOf(t, cfg, "resourceclaims"), rowOf(t, cfg, "resourceclaimtemplates")
		for what, errs := range map[string]string{
			"claim":    message(claims.Strategy.Validate(t.Context(), claim).ToAggregate()),
			"template": message(templates.Strategy.Validate(t.Context(), template).ToAggregate()),
			"status":   message(claims.Subresources[0].Strategy.ValidateUpdate(t.Context(), granted, claim).ToAggregate()),
		} {
			if (want == "") != (errs == "") || !strings.Contains(errs, want) {
				t.Errorf("%s in namespace %s: got %q, want %q", what, namespace, errs, want)
			}
		}
		if errs := message(claims.Subresources[0].Strategy.ValidateUpdate(t.Context(), granted, granted).ToAggregate()); strings.Contains(errs, "admin access") {
			t.Errorf("status in namespace %s with access before: got %v", namespace, errs)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A selector of devices that could cost too much is refused when it is written.
func TestDeviceSelectorsAreEstimated(t *testing.T) {
	t.Parallel()
	selector := "true"
	for i := range 8 {
		selector = fmt.Sprintf("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(v%d, %s)", i, selector)
	}
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: selector}}}
	if errs := message(rowOf(t, Config{}, "deviceclasses").Strategy.Validate(t.Context(), class).ToAggregate()); !strings.Contains(errs, "too complex") {
		t.Errorf("got %q", errs)
	}
}

// A service account with a token bound to the node of a claim may report on devices with the
// right for its own node; others need the right for any node.
func TestReportsOnDevicesOfTheOwnNode(t *testing.T) {
	t.Parallel()
	p := Permissions{Authorize: func(_ context.Context, a *resource.Action) error {
		if a.Verb == "associated-node:update" && a.Subresource == "driver" && a.Name == "d" && a.Namespace == "ns" {
			return nil
		}
		return authz.Forbidden(a, "")
	}}
	status := rowOf(t, Config{Permissions: p}, "resourceclaims").Subresources[0].Strategy
	drivers := func(ctx context.Context, now, old *resourcev1.ResourceClaimStatus) string {
		meta := metav1.ObjectMeta{Name: "a", Namespace: "ns", ResourceVersion: "1"}
		errs := status.ValidateUpdate(ctx, &resourcev1.ResourceClaim{ObjectMeta: meta, Status: *now}, &resourcev1.ResourceClaim{ObjectMeta: meta, Status: *old})
		for _, err := range errs {
			if strings.Contains(err.Detail, "resourceclaims/driver") {
				return err.Detail
			}
		}
		return ""
	}
	on := func(values ...string) *resourcev1.ResourceClaimStatus {
		return &resourcev1.ResourceClaimStatus{
			Allocation: &resourcev1.AllocationResult{NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: values}}},
			}}},
			Devices: []resourcev1.AllocatedDeviceStatus{{Driver: "d", Pool: "p", Device: "x"}},
		}
	}
	account := func(nodes ...string) *resource.User {
		return &resource.User{Name: "system:serviceaccount:ns:driver", Extra: map[string][]string{"authentication.kubernetes.io/node-name": nodes}}
	}
	person := account("n1")
	person.Name = "jane"
	for name, test := range map[string]struct {
		user    *resource.User
		status  *resourcev1.ResourceClaimStatus
		allowed bool
	}{
		"the node":              {account("n1"), on("n1"), true},
		"another node":          {account("n2"), on("n1"), false},
		"a claim for two nodes": {account("n1"), on("n1", "n2"), false},
		"two nodes":             {account("n1", "n1"), on("n1"), false},
		"no node":               {account(), on("n1"), false},
		"a user":                {person, on("n1"), false},
		"not allocated":         {person, &resourcev1.ResourceClaimStatus{}, true},
	} {
		ctx := resource.WithAction(t.Context(), &resource.Action{User: test.user, Verb: "update", Namespace: "ns"})
		if errs := drivers(ctx, test.status, &resourcev1.ResourceClaimStatus{}); (errs == "") != test.allowed {
			t.Errorf("%s: %v", name, errs)
		}
	}
	if errs := drivers(t.Context(), on("n1"), on("n1")); errs != "" {
		t.Errorf("nothing changes: %v", errs)
	}
}

// rowOf returns the row of a resource with that configuration.
func rowOf(t *testing.T, cfg Config, name string) *rest.Kind {
	t.Helper()
	for _, k := range All(cfg) {
		if k.Resource == name {
			return k
		}
	}
	t.Fatalf("no resource %s", name)
	return nil
}
