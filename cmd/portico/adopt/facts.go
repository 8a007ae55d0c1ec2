package adopt

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/resource"
	"portico/resource/authn"
)

// freshness is how recent the renewal of the lease of an API server is that still runs: it renews
// every ten seconds.
const freshness = 30 * time.Second

// tokenKeys are the keys of --service-account-key-file; none: they are not given.
type tokenKeys []authn.PublicKey

// facts are what single objects say about the installation.
type facts struct {
	keys tokenKeys
	now  time.Time

	// servers are kube-apiservers that run, by address or lease, and gateways those of Portico.
	servers, gateways []string
	ended             []resource.Key // identity leases of API servers that ended
	serviceRange      string
	// lowPort and highPort are the least and the greatest node port of a Service.
	lowPort, highPort int32
	// tokens counts the Secrets with tokens, foreign those that no key has signed, such as example.
	tokens, foreign int
	example         string
	failing         int // webhooks without which writes fail
}

// addServer adds a running API server by its key, if it is an address.
func (f *facts) addServer(name, path string) {
	if path != "masterleases" {
		return
	}
	if _, err := netip.ParseAddrPort(name); err == nil {
		f.gateways = append(f.gateways, name) // kube-apiserver stores no port
		return
	}
	f.servers = append(f.servers, name)
}

// add adds an object that is served.
func (f *facts) add(o *resource.Object, decoded runtime.Object) {
	switch obj := decoded.(type) {
	case *coordinationv1.Lease:
		if ended(o, nil) {
			f.addLease(obj)
		}
	case *networkingv1.ServiceCIDR:
		if obj.Name == kubernetesService {
			f.serviceRange = strings.Join(obj.Spec.CIDRs, ",")
		}
	case *corev1.Service:
		for _, p := range obj.Spec.Ports {
			f.addPort(p.NodePort)
		}
		f.addPort(obj.Spec.HealthCheckNodePort)
	case *corev1.Secret:
		f.addSecret(o, obj)
	case *admissionv1.ValidatingWebhookConfiguration:
		for _, w := range obj.Webhooks {
			f.addWebhook(w.FailurePolicy)
		}
	case *admissionv1.MutatingWebhookConfiguration:
		for _, w := range obj.Webhooks {
			f.addWebhook(w.FailurePolicy)
		}
	}
}

// addLease adds the identity of a kube-apiserver.
func (f *facts) addLease(l *coordinationv1.Lease) {
	if renewed := l.Spec.RenewTime; renewed != nil && f.now.Sub(renewed.Time) < freshness {
		f.servers = append(f.servers, l.Name)
		return
	}
	f.ended = append(f.ended, resource.Key{Namespace: l.Namespace, Name: l.Name})
}

func (f *facts) addPort(port int32) {
	if port == 0 {
		return
	}
	if f.lowPort == 0 || port < f.lowPort {
		f.lowPort = port
	}
	f.highPort = max(f.highPort, port)
}

func (f *facts) addSecret(o *resource.Object, s *corev1.Secret) {
	token := string(s.Data[corev1.ServiceAccountTokenKey])
	if s.Type != corev1.SecretTypeServiceAccountToken || token == "" {
		return
	}
	f.tokens++
	if len(f.keys) > 0 && !slices.ContainsFunc(f.keys, func(k authn.PublicKey) bool { return k.Signed(token) }) {
		f.foreign++
		f.example = o.Key().String()
	}
}

func (f *facts) addWebhook(policy *admissionv1.FailurePolicyType) {
	if policy == nil || *policy == admissionv1.Fail {
		f.failing++
	}
}

// defaultLow and defaultHigh are the default node ports of portico up.
const defaultLow, defaultHigh = 30000, 32767

// notes returns what follows of the facts for portico up.
func (f *facts) notes() (notes []string) {
	if f.serviceRange != "" {
		notes = append(notes, "Services have addresses of "+f.serviceRange+": give portico up --service-cluster-ip-range="+f.serviceRange)
	}
	if f.lowPort != 0 && (f.lowPort < defaultLow || f.highPort > defaultHigh) {
		notes = append(notes, fmt.Sprintf("Services have node ports from %d to %d: give portico up --service-node-port-range", f.lowPort, f.highPort))
	}
	if f.tokens > 0 && len(f.keys) == 0 {
		notes = append(notes, fmt.Sprintf("%d tokens of service accounts are in Secrets: they hold with kube-apiserver's signing key only, as pki/service-account.key of the data folder; "+
			"--service-account-key-file checks them", f.tokens))
	}
	if f.failing > 0 {
		notes = append(notes, fmt.Sprintf("webhooks with failurePolicy Fail (%d): while their servers are away, the writes that they are for fail", f.failing))
	}
	if len(f.gateways) > 0 {
		notes = append(notes, "Portico runs on this etcd already: gateways at "+strings.Join(f.gateways, ", "))
	}
	return notes
}

// problems returns the facts that make adoption unsafe. Those of a snapshot say nothing of what runs.
func (f *facts) problems(live bool) (problems []string) {
	if live && len(f.servers) > 0 {
		problems = append(problems, fmt.Sprintf("a kube-apiserver uses this etcd (%s): stop it, and wait %.0f s", strings.Join(f.servers, ", "), freshness.Seconds()))
	}
	if f.foreign > 0 {
		problems = append(problems, fmt.Sprintf("--service-account-key-file: %d of %d tokens in Secrets, such as that of %s, were signed by another key", f.foreign, f.tokens, f.example))
	}
	return problems
}
