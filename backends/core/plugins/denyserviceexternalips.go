package plugins

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"portico/resource/rest"
)

// newDenyServiceExternalIPs rejects external addresses that a Service does not have already.
func newDenyServiceExternalIPs(*Config) (rest.Admission, error) {
	return validates(func(_ context.Context, a *rest.Attributes) error {
		service, ok := written[*corev1.Service](a)
		if !ok {
			return nil
		}
		var known []string
		if old, ok := a.Old.(*corev1.Service); ok {
			known = old.Spec.ExternalIPs
		}
		if slices.ContainsFunc(service.Spec.ExternalIPs, func(ip string) bool { return !slices.Contains(known, ip) }) {
			//lint:ignore ST1005 The message is kube-apiserver's.
			return forbidden(a, errors.New("Use of external IPs is denied by admission control"))
		}
		return nil
	}), nil
}
