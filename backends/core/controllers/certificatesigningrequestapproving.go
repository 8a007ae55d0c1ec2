package controllers

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// approveCertificates approves requests for client certificates of kubelets, if an access review
// finds that their authors may have them.
func approveCertificates(ctx context.Context, env *Env) error {
	return env.workRequests(ctx, "csrapproving", func(ctx context.Context, r *signingRequest) error {
		if has(r, certificatesv1.CertificateApproved) || has(r, certificatesv1.CertificateDenied) {
			return nil
		}
		request, err := parseRequest(r.Spec.Request)
		if err != nil {
			return fmt.Errorf("unable to parse csr %q: %w", r.Name, err)
		}
		if r.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName || checkKubeletClient(request, r.Spec.Usages) != nil {
			return nil
		}
		rights := []struct{ subresource, prefix string }{{"selfnodeclient", "self "}, {"nodeclient", ""}}
		if r.Spec.Username != request.Subject.CommonName {
			rights = rights[1:] // it is for another node
		}
		var tried []string
		for _, right := range rights {
			allowed, err := env.mayRequest(ctx, &r.Spec, right.subresource)
			if err != nil {
				return err
			}
			if !allowed {
				tried = append(tried, right.subresource)
				continue
			}
			r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
				Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved",
				Message: fmt.Sprintf("Auto approving %skubelet client certificate after SubjectAccessReview.", right.prefix),
			})
			_, err = env.Client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, r.Name, r, metav1.UpdateOptions{})
			return err
		}
		return fmt.Errorf("recognized csr %q as %v but subject access review was not approved: %w", r.Name, tried, errNotYet)
	})
}

// mayRequest reports whether the author of a request may create a subresource of requests.
func (e *Env) mayRequest(ctx context.Context, spec *certificatesv1.CertificateSigningRequestSpec, subresource string) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range spec.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	review, err := e.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: spec.Username, UID: spec.UID, Groups: spec.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: certificatesv1.GroupName, Version: "*", Resource: "certificatesigningrequests", Subresource: subresource, Verb: "create",
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}
