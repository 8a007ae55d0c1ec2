package adopt

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/apiservice"
	"portico/resource"
	"portico/resource/identity"
)

// Outcome is what becomes of objects.
type Outcome string

const (
	outcomeServed     Outcome = "Served"
	outcomeReconciled Outcome = "Reconciled" // served, and changed at the first start
	outcomeNodes      Outcome = "Nodes"      // served, and of use with nodes only
	outcomeIgnored    Outcome = "Ignored"
	outcomeRemoved    Outcome = "Removed" // by adoption, or by the gateway at its first start
	outcomeVersion    Outcome = "VersionNotServed"
	outcomeUnknown    Outcome = "KindNotServed"
	outcomeEncrypted  Outcome = "Encrypted"
	outcomeDamaged    Outcome = "Undecodable"
)

// texts are the outcomes in the table.
var texts = map[Outcome]string{
	outcomeServed:     "served read-write",
	outcomeReconciled: "served, changed at the first start",
	outcomeNodes:      "served, of nodes",
	outcomeIgnored:    "no object of the API",
	outcomeRemoved:    "removed",
	outcomeVersion:    "not served: Portico does not have the version",
	outcomeUnknown:    "not served: Portico does not have the kind; kept, also when its namespace is deleted",
	outcomeEncrypted:  "not served: encrypted",
	outcomeDamaged:    "not served: cannot be decoded",
}

// Labels and names of kube-apiserver.
const (
	labelBootstrap    = "kubernetes.io/bootstrapping"
	nodeLeases        = corev1.NamespaceNodeLease
	kubernetesService = "kubernetes"
)

// ignored are the storage paths that only a kube-apiserver reads.
var ignored = map[string]string{
	"ranges":           "claims of addresses and ports: they are made anew from Services",
	"masterleases":     "addresses of running API servers; they expire",
	"peerserverleases": "addresses of running API servers among each other",
}

// rule is an outcome of some objects of a resource that are served.
type rule struct {
	applies func(o *resource.Object, decoded runtime.Object) bool
	outcome Outcome
	note    string
}

// rules are the rules of storage paths; the first one that applies decides.
var rules = map[string][]rule{
	"apiregistration.k8s.io/apiservices": {{labelled(apiservice.AutomanagedLabel), outcomeReconciled, "those of groups that Portico serves get its priorities, the others are removed"}},
	"clusterroles":                       {{labelled(labelBootstrap), outcomeReconciled, defaultPolicy}},
	"clusterrolebindings":                {{labelled(labelBootstrap), outcomeReconciled, defaultPolicy}},
	"roles":                              {{labelled(labelBootstrap), outcomeReconciled, defaultPolicy}},
	"rolebindings":                       {{labelled(labelBootstrap), outcomeReconciled, defaultPolicy}},
	"services/specs":                     {{named(corev1.NamespaceDefault, kubernetesService), outcomeReconciled, gatewayAddresses}},
	"services/endpoints":                 {{named(corev1.NamespaceDefault, kubernetesService), outcomeReconciled, gatewayAddresses}},
	"endpointslices":                     {{named(corev1.NamespaceDefault, kubernetesService), outcomeReconciled, gatewayAddresses}},
	"configmaps": {
		{named(metav1.NamespaceSystem, "extension-apiserver-authentication"), outcomeReconciled, authorities},
		{named("", "kube-root-ca.crt"), outcomeReconciled, authorities},
	},
	"leases": {
		{ended, outcomeRemoved, "identities of API servers that ended"},
		{named(nodeLeases, ""), outcomeNodes, "kubelets renew them"},
	},
	"minions":  {{always, outcomeNodes, "kubelets must reach the gateway"}},
	"csinodes": {{always, outcomeNodes, "kubelets must reach the gateway"}},
	"pods":     {{bound, outcomeNodes, "bound to nodes"}},
	"events":   {{always, outcomeServed, "they expire"}},
}

const (
	defaultPolicy    = "missing default rules and subjects are added"
	gatewayAddresses = "it gets the addresses of the gateways"
	authorities      = "it gets the authorities of the installation"
)

func always(*resource.Object, runtime.Object) bool { return true }

func bound(_ *resource.Object, decoded runtime.Object) bool {
	pod, ok := decoded.(*corev1.Pod)
	return ok && pod.Spec.NodeName != ""
}

// ended is for the identity leases of kube-apiservers; while one runs, adoption is refused.
func ended(o *resource.Object, _ runtime.Object) bool {
	return o.Labels.Has(identity.Label) && !strings.HasPrefix(o.Labels.Get(identity.Label), identity.LabelPrefix)
}

// labelled is for objects that have a label.
func labelled(key string) func(*resource.Object, runtime.Object) bool {
	return func(o *resource.Object, _ runtime.Object) bool { return o.Labels.Has(key) }
}

// named is for the object of a name, "" for any, in a namespace, "" for any.
func named(namespace, name string) func(*resource.Object, runtime.Object) bool {
	return func(o *resource.Object, _ runtime.Object) bool {
		return (namespace == "" || o.Namespace == namespace) && (name == "" || o.Name == name)
	}
}

// outcomeOf returns the outcome of an object that is served.
func outcomeOf(path string, o *resource.Object, decoded runtime.Object) (Outcome, string) {
	for _, r := range rules[path] {
		if r.applies(o, decoded) {
			return r.outcome, r.note
		}
	}
	return outcomeServed, ""
}
