package services

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/rest"
)

// defaultCIDR is the name of the ServiceCIDR with the ranges of the configuration.
const defaultCIDR = "kubernetes"

// ensureCIDR creates the default ServiceCIDR, adds the second range if it has only the first,
// and reports other differences as an Event. It sets the condition Ready where there is none.
func (s *Services) ensureCIDR(ctx context.Context) error {
	var cidrs []string
	for _, r := range s.ranges {
		cidrs = append(cidrs, r.String())
	}
	r := s.cfg.Resource(networkingv1.GroupName, "servicecidrs")
	_, err := rest.CreateObject(ctx, r, &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: defaultCIDR},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: cidrs},
		Status:     networkingv1.ServiceCIDRStatus{Conditions: []metav1.Condition{readyCondition()}},
	})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	_, err = rest.Modify(ctx, r, resource.Key{Name: defaultCIDR}, func(have *networkingv1.ServiceCIDR) error {
		if !have.DeletionTimestamp.IsZero() {
			return nil
		}
		if len(cidrs) == 2 && len(have.Spec.CIDRs) == 1 && have.Spec.CIDRs[0] == cidrs[0] {
			have.Spec.CIDRs = cidrs
		}
		if !slices.Equal(have.Spec.CIDRs, cidrs) {
			s.event(ctx, &corev1.ObjectReference{APIVersion: "networking.k8s.io/v1", Kind: "ServiceCIDR", Name: have.Name, UID: have.UID},
				"KubernetesDefaultServiceCIDRInconsistent",
				fmt.Sprintf("The default ServiceCIDR %v does not match the controller flag configurations %s", have.Spec.CIDRs, cidrs))
			return nil
		}
		ready := meta.FindStatusCondition(have.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
		if ready == nil || ready.Status == metav1.ConditionUnknown {
			meta.SetStatusCondition(&have.Status.Conditions, readyCondition())
		}
		return nil
	})
	return err
}

func readyCondition() metav1.Condition {
	return metav1.Condition{
		Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue,
		Message: "Kubernetes default Service CIDR is ready", LastTransitionTime: rest.Now(),
	}
}
