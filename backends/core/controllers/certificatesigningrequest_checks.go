package controllers

//lint:file-ignore ST1005 The errors are messages of conditions, in the words of kube-controller-manager.

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"

	"portico/resource"
)

// The rules of the built-in signers, with the messages of kube-controller-manager.

// checkRequest returns an error for what a signer does not sign.
func checkRequest(r *x509.CertificateRequest, signer string, usages []certificatesv1.KeyUsage) error {
	switch signer {
	case certificatesv1.KubeletServingSignerName:
		return checkKubeletServing(r, usages)
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		return checkKubeletClient(r, usages)
	case certificatesv1.KubeAPIServerClientSignerName:
		if err := checkClientUsages(usages); err != nil {
			return err
		}
	}
	return checkOrdinary(r, signer)
}

// checkOrdinary refuses the users that no role or limit restricts, whatever admission plugins
// are enabled: system:masters, and Portico's own processes.
func checkOrdinary(r *x509.CertificateRequest, signer string) error {
	if slices.Contains(r.Subject.Organization, resource.GroupMasters) {
		return fmt.Errorf("use of %s signer with %s group is not allowed", signer, resource.GroupMasters)
	}
	if (&resource.User{Name: r.Subject.CommonName}).Unlimited() {
		return fmt.Errorf("use of %s signer with the name of one of Portico's processes, %q, is not allowed", signer, r.Subject.CommonName)
	}
	return nil
}

func checkKubeletServing(r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch {
	case !ofNodes(r):
		return errNotNodes
	case len(r.DNSNames) == 0 && len(r.IPAddresses) == 0:
		return errors.New("DNS or IP subjectAltName is required")
	case len(r.EmailAddresses) > 0:
		return errors.New("Email subjectAltNames are not allowed")
	case len(r.URIs) > 0:
		return errors.New("URI subjectAltNames are not allowed")
	}
	if err := checkKubeletUsages(usages, certificatesv1.UsageServerAuth); err != nil {
		return err
	}
	return checkNodeName(r)
}

func checkKubeletClient(r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch {
	case !ofNodes(r):
		return errNotNodes
	case len(r.DNSNames) > 0:
		return errors.New("DNS subjectAltNames are not allowed")
	case len(r.EmailAddresses) > 0:
		return errors.New("Email subjectAltNames are not allowed")
	case len(r.IPAddresses) > 0:
		return errors.New("IP subjectAltNames are not allowed")
	case len(r.URIs) > 0:
		return errors.New("URI subjectAltNames are not allowed")
	}
	if err := checkNodeName(r); err != nil {
		return err
	}
	return checkKubeletUsages(usages, certificatesv1.UsageClientAuth)
}

var errNotNodes = errors.New("subject organization is not system:nodes")

func ofNodes(r *x509.CertificateRequest) bool {
	return slices.Equal(r.Subject.Organization, []string{"system:nodes"})
}

func checkNodeName(r *x509.CertificateRequest) error {
	if !strings.HasPrefix(r.Subject.CommonName, "system:node:") {
		return errors.New("subject common name does not begin with system:node:")
	}
	return nil
}

// checkKubeletUsages requires digital signature and the given usage, and permits key
// encipherment, which keys of RSA need.
func checkKubeletUsages(usages []certificatesv1.KeyUsage, auth certificatesv1.KeyUsage) error {
	required := []certificatesv1.KeyUsage{auth, certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment}
	slices.Sort(required)
	for _, u := range usages {
		if !slices.Contains(required, u) {
			return fmt.Errorf("usages did not match %v", required)
		}
	}
	if !slices.Contains(usages, auth) || !slices.Contains(usages, certificatesv1.UsageDigitalSignature) {
		return fmt.Errorf("usages did not match %v", required)
	}
	return nil
}

func checkClientUsages(usages []certificatesv1.KeyUsage) error {
	for _, u := range usages {
		switch u {
		case certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth:
		default:
			return fmt.Errorf("invalid usage for client certificate: %s", u)
		}
	}
	if !slices.Contains(usages, certificatesv1.UsageClientAuth) {
		return fmt.Errorf("missing required usage for client certificate: %s", certificatesv1.UsageClientAuth)
	}
	return nil
}
