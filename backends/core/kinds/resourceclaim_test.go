package kinds

import (
	"context"
	"errors"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	}}
	for namespace, want := range map[string]string{
		"admin": "", "default": "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace",
		"absent": "could not retrieve namespace to verify admin access: no namespace",
	} {
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: namespace}}
		claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: "c", AllocationMode: resourcev1.DeviceAllocationModeAll, AdminAccess: new(true),
		}}}
		template := &resourcev1.ResourceClaimTemplate{ObjectMeta: claim.ObjectMeta, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: claim.Spec}}
		granted := claim.DeepCopy()
		granted.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "r", Driver: "d", Pool: "p", Device: "x", AdminAccess: new(true)},
		}}}
		claims := resourceClaims(cfg)
		for what, errs := range map[string]string{
			"claim":    message(claims.Strategy.Validate(t.Context(), claim).ToAggregate()),
			"template": message(resourceClaimTemplates(cfg).Strategy.Validate(t.Context(), template).ToAggregate()),
			"status":   message(claims.Subresources[0].Strategy.ValidateUpdate(t.Context(), granted, claim).ToAggregate()),
		} {
			if (want == "") != (errs == "") || !strings.Contains(errs, want) {
				t.Errorf("%s in namespace %s: got %q, want %q", what, namespace, errs, want)
			}
		}
		if errs := claims.Subresources[0].Strategy.ValidateUpdate(t.Context(), granted, granted); errs != nil {
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
