package kinds

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	registry "k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/registry/certificates/certificates"
	"k8s.io/kubernetes/pkg/registry/certificates/clustertrustbundle"
	"k8s.io/kubernetes/pkg/registry/certificates/podcertificaterequest"
	"k8s.io/utils/clock"
)

// certificatesRows are the resources of certificates.k8s.io.
func certificatesRows(cfg Config) []row {
	podRequests := podcertificaterequest.NewStrategy()
	return []row{
		{
			Info:     clusterwide(certificatesv1.GroupName, "certificatesigningrequests", "CertificateSigningRequest", "csr"),
			strategy: certificates.Strategy, status: certificates.StatusStrategy,
			updates: map[string]registry.RESTUpdateStrategy{"approval": certificates.ApprovalStrategy},
			fields:  fieldsFrom(certificates.GetAttrs), fieldLabels: []string{"spec.signerName"},
		},
		{
			Info:     clusterwide(certificatesv1.GroupName, "clustertrustbundles", "ClusterTrustBundle"),
			strategy: clustertrustbundle.Strategy,
			fields: fieldsOf(func(b *certificatesv1.ClusterTrustBundle) map[string]string {
				return map[string]string{"spec.signerName": b.Spec.SignerName}
			}), fieldLabels: []string{"spec.signerName"},
		},
		{
			Info:     namespaced(certificatesv1.GroupName, "podcertificaterequests", "PodCertificateRequest"),
			strategy: podRequests, status: podcertificaterequest.NewStatusStrategy(podRequests, cfg.authorizer(), clock.RealClock{}),
			fields: fieldsOf(func(r *certificatesv1.PodCertificateRequest) map[string]string {
				return map[string]string{"spec.nodeName": string(r.Spec.NodeName), "spec.podName": r.Spec.PodName, "spec.signerName": r.Spec.SignerName}
			}), fieldLabels: []string{"spec.nodeName", "spec.podName", "spec.signerName"},
		},
	}
}
