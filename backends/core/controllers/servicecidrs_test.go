package controllers

import (
	"testing"
	"time"

	"portico/internal/testing/await"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// A ServiceCIDR becomes ready. Its deletion waits while Services have addresses that no other
// one has, and for the grace period.
func TestServiceCIDRs(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	now := clocktesting.NewFakeClock(time.Now().Truncate(time.Second))
	cidrs, ips := s.NetworkingV1().ServiceCIDRs(), s.NetworkingV1().IPAddresses()
	make := func(name, cidr string) {
		must[*networkingv1.ServiceCIDR](t)(cidrs.Create(t.Context(), &networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{cidr}},
		}, metav1.CreateOptions{}))
	}
	ready := func(name string) (status metav1.ConditionStatus) {
		cidr := must[*networkingv1.ServiceCIDR](t)(cidrs.Get(t.Context(), name, metav1.GetOptions{}))
		if c := meta.FindStatusCondition(cidr.Status.Conditions, "Ready"); c != nil && len(cidr.Finalizers) == 1 {
			status = c.Status
		}
		return status
	}
	gone := func(name string) bool {
		_, err := cidrs.Get(t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}
	remove := func(name string) {
		if err := cidrs.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	make("used", "10.1.0.0/24")
	make("inner", "10.1.0.0/28")
	s.run("service-cidr-controller", Options{}, now)
	for _, name := range []string{"used", "inner"} {
		await.Until(t, name+" is ready", func() bool { return ready(name) == metav1.ConditionTrue })
	}
	must[*networkingv1.IPAddress](t)(ips.Create(t.Context(), &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: "10.1.0.3", Labels: map[string]string{networkingv1.LabelManagedBy: addressManager}},
		Spec:       networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: "n", Name: "s"}},
	}, metav1.CreateOptions{}))
	remove("inner") // its addresses are those of used
	await.Until(t, "the deletion waits", func() bool { return now.HasWaiters() })
	if gone("inner") {
		t.Error("it did not wait for the grace period")
	}
	now.Step(serviceCIDRGrace + time.Second)
	await.Until(t, "inner is gone", func() bool { return gone("inner") })
	now.SetTime(time.Now()) // the informer may see the address later than the deletion
	remove("used")
	await.Until(t, "used is terminating", func() bool { return ready("used") == metav1.ConditionFalse })
	now.Step(time.Minute)
	if err := ips.Delete(t.Context(), "10.1.0.3", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "used is gone", func() bool { return gone("used") })
}
