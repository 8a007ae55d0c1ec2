package adopt

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	admissionv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/cmd/e2e"
	"portico/cmd/e2e/etcdprocess"
	"portico/cmd/e2e/kubeapiserver"
	"portico/cmd/internal/testtools"
	"portico/internal/testing/await"
	"portico/resource/identity"
)

const (
	serviceRange = kubeapiserver.ServiceRange
	// onlyController is the only controller that runs: others change objects, as those of
	// kube-controller-manager do.
	onlyController = "root-ca-certificate-publisher-controller"
)

// portico runs a command to its end, and returns what it printed.
func portico(t *testing.T, args ...string) (string, error) {
	t.Helper()
	program := e2e.Program(t, testtools.Portico)
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	return string(out), err
}

// What kube-apiserver stored is adopted: Portico serves what kube-apiserver served, old tokens
// are valid, every object can be updated, and kube-apiserver's types read what Portico stores. A policy
// that is stored as v1beta1 applies.
func TestRecordedKubeAPIServer(t *testing.T) {
	t.Parallel()
	r, etcd := load(t), etcdprocess.Start(t)
	client := connect(t, etcd)
	for key, value := range r.Stored {
		if _, err := client.Put(t.Context(), key, string(value)); err != nil {
			t.Fatal(err)
		}
	}
	adopt(t, etcd, r)
	up := serve(t, etcd, r)
	updated := 0
	for name, o := range readAll(t, up.Config(t)) {
		if o.GetAnnotations()[mark] == "portico" {
			updated++
		} else if r.Served[name].Unstructured != nil && !ofServers(o) {
			t.Errorf("%s is not marked", name)
		}
	}
	if found := markedIn(t, storedIn(t, client)); found != updated {
		t.Errorf("kube-apiserver's types read %d objects that Portico has updated, want %d", found, updated)
	}
	checkStoredV1beta1Policy(t, client, up)
}

// checkStoredV1beta1Policy stores a policy as v1beta1, as kube-apiserver 1.36 did, and checks that it
// applies.
func checkStoredV1beta1Policy(t *testing.T, etcd *clientv3.Client, up *e2e.Installation) {
	t.Helper()
	fail, equivalent := admissionv1beta1.Fail, admissionv1beta1.Equivalent
	policy := &admissionv1beta1.MutatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1beta1", Kind: "MutatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: "v1beta1", UID: "policy", CreationTimestamp: metav1.Now()},
		Spec: admissionv1beta1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1beta1.MatchResources{MatchPolicy: &equivalent, NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}, ResourceRules: []admissionv1beta1.NamedRuleWithOperations{{
				ResourceNames: []string{"v1beta1"},
				RuleWithOperations: admissionv1beta1.RuleWithOperations{
					Operations: []admissionv1beta1.OperationType{admissionv1beta1.Create},
					Rule:       admissionv1beta1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
				},
			}}},
			Mutations: []admissionv1beta1.Mutation{{PatchType: admissionv1beta1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionv1beta1.ApplyConfiguration{
				Expression: `Object{metadata: Object.metadata{labels: {"mutated": "yes"}}}`,
			}}},
			FailurePolicy: &fail, ReinvocationPolicy: admissionv1beta1.NeverReinvocationPolicy,
		},
	}
	binding := &admissionv1beta1.MutatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1beta1", Kind: "MutatingAdmissionPolicyBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: "v1beta1", UID: "binding", CreationTimestamp: metav1.Now()},
		Spec:       admissionv1beta1.MutatingAdmissionPolicyBindingSpec{PolicyName: "v1beta1"},
	}
	for key, obj := range map[string]runtime.Object{"mutatingadmissionpolicies": policy, "mutatingadmissionpolicybindings": binding} {
		value, err := runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), obj)
		if err == nil {
			_, err = etcd.Put(t.Context(), "/registry/"+key+"/v1beta1", string(value))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	maps := up.Client(t).CoreV1().ConfigMaps("default")
	await.Until(t, "the policy applies", func() bool {
		got, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "v1beta1"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && got.Labels["mutated"] == "yes"
	})
}

// adopt runs portico adopt: it says what it would do, does it, and then finds nothing to do.
func adopt(t *testing.T, etcd *etcdprocess.Process, r *recording) {
	t.Helper()
	key := filepath.Join(t.TempDir(), "sa.key")
	e2e.WriteFile(t, key, r.Key)
	out, err := portico(t, "adopt", "--dry-run", "--etcd-servers="+etcd.Endpoint(), "--service-account-key-file="+key)
	if err != nil {
		t.Fatalf("adopt --dry-run: %v\n%s", err, out)
	}
	t.Log(out)
	for range 2 {
		if out, err = portico(t, "adopt", "--yes", "--etcd-servers="+etcd.Endpoint()); err != nil {
			t.Fatalf("adopt: %v\n%s", err, out)
		}
	}
	if !strings.Contains(out, "there is nothing to do") {
		t.Errorf("the second adoption printed\n%s", out)
	}
}

// serve starts Portico on an adopted etcd, and checks that it serves and updates everything.
func serve(t *testing.T, etcd *etcdprocess.Process, r *recording) *e2e.Installation {
	t.Helper()
	data := t.TempDir()
	if err := os.MkdirAll(filepath.Join(data, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	e2e.WriteFile(t, filepath.Join(data, "pki", "service-account.key"), r.Key)
	up := e2e.Install(t, data, "--etcd-servers="+etcd.Endpoint(), "--service-cluster-ip-range="+serviceRange, "--controllers="+onlyController)
	compare(t, r.Served, readAll(t, up.Config(t)), reconciled)
	checkTokens(t, up.Config(t), r.Tokens)
	checkAddresses(t, up.Client(t), r.Served["services default/a"])
	r.Served.updateAll(t, up.Config(t), "portico")
	return up
}

// markedIn returns how many values in etcd kube-apiserver's types read as objects that Portico
// has updated.
func markedIn(t *testing.T, stored map[string][]byte) (marked int) {
	t.Helper()
	for key, value := range stored {
		if !bytes.Contains(value, []byte(mark)) {
			continue
		}
		var read metav1.Object
		if bytes.HasPrefix(value, []byte("{")) {
			u := &unstructured.Unstructured{}
			if err := json.Unmarshal(value, &u.Object); err != nil {
				t.Errorf("%s is stored as %q: %v", key, value, err)
				continue
			}
			read = u
		} else {
			decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, nil)
			if err != nil {
				t.Errorf("%s is stored as %q: %v", key, value, err)
				continue
			}
			read = decoded.(metav1.Object)
		}
		if read.GetAnnotations()[mark] != "portico" || read.GetResourceVersion() != "" {
			t.Errorf("%s is stored with the annotations %v and the resourceVersion %q", key, read.GetAnnotations(), read.GetResourceVersion())
			continue
		}
		marked++
	}
	return marked
}

// reconciled reports whether a server changes or replaces an object when it starts.
func reconciled(o object) bool {
	labels := o.GetLabels()
	return labels[apiservice.AutomanagedLabel] != "" || labels["kubernetes.io/bootstrapping"] != "" || labels[identity.Label] != "" ||
		o.Group == backend.Group || ofServers(o)
}

// checkTokens checks that tokens that kube-apiserver issued are valid.
func checkTokens(t *testing.T, admin *rest.Config, tokens []string) {
	t.Helper()
	for _, token := range tokens {
		cfg := rest.AnonymousClientConfig(admin)
		cfg.BearerToken = token
		if got := e2e.Whoami(t, cfg); got != "system:serviceaccount:default:adopted" {
			t.Errorf("a token is one of %q", got)
		}
	}
}

// checkAddresses checks that the cluster IP of a Service that was adopted is not given to another.
func checkAddresses(t *testing.T, client kubernetes.Interface, adopted object) {
	t.Helper()
	taken, _, _ := unstructured.NestedString(adopted.Object, "spec", "clusterIP")
	_, err := client.CoreV1().Services("b").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "second"}, Spec: corev1.ServiceSpec{ClusterIP: taken, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "already allocated") {
		t.Errorf("a second Service with address %q: %v", taken, err)
	}
}

// compare reports objects that a server before had and one after it lacks or has otherwise.
func compare(t *testing.T, before, after contents, expected func(object) bool) {
	t.Helper()
	for name, o := range before {
		now, found := after[name]
		switch {
		case expected(o):
		case !found:
			t.Errorf("%s is missing", name)
		case !same(o, now):
			t.Errorf("%s was\n%s\nand is\n%s", name, plain(o), plain(now))
		}
	}
}
