package admission

import (
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

func mutatingPolicy(name string, mutations ...admissionv1.Mutation) *admissionv1.MutatingAdmissionPolicy {
	p := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec = admissionv1.MutatingAdmissionPolicySpec{
		FailurePolicy: new(admissionv1.Fail), MatchConstraints: constraints(), ReinvocationPolicy: admissionv1.NeverReinvocationPolicy, Mutations: mutations,
	}
	p.Spec.MatchConstraints.ResourceRules[0].Operations = []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}
	return p
}

func mutatingBinding(name, policy string) *admissionv1.MutatingAdmissionPolicyBinding {
	return &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: policy}}
}

func applying(expression string) admissionv1.Mutation {
	return admissionv1.Mutation{PatchType: admissionv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: expression}}
}

func jsonPatching(expression string) admissionv1.Mutation {
	return admissionv1.Mutation{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: expression}}
}

// Both types of patches apply, with a schema and without.
func TestPolicyMutates(t *testing.T) {
	for name, mutation := range map[string]admissionv1.Mutation{
		"apply":      applying(`Object{metadata: Object.metadata{labels: Object.metadata.labels{by: "policy"}}}`),
		"JSON patch": jsonPatching(`[JSONPatch{op: "add", path: "/metadata/labels", value: {"by": "policy"}}]`),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			// Configuration maps have a schema, widgets are deduced.
			b.resources["configmaps"].Ownership = func() (managedfields.TypeConverter, error) {
				return applyconfigurations.NewTypeConverter(clientscheme.Scheme), nil
			}
			b.configure(mutatingPolicy("p", mutation), mutatingBinding("b", "p"))
			for body, path := range map[string]string{configMap("x"): configMapsPath, widget("x"): widgetsPath} {
				got := b.must(http.MethodPost, path, body)
				if text(got, "metadata", "labels", "by") != "policy" || got.GetName() != "x" {
					t.Errorf("created %v", got)
				}
				if got := b.must(http.MethodGet, path+"/x", ""); text(got, "metadata", "labels", "by") != "policy" {
					t.Errorf("stored %v", got)
				}
				b.must(http.MethodDelete, path+"/x", "")
			}
		})
	}
}

// A policy for another version gets the object in that version.
func TestPolicyMutatesOtherVersion(t *testing.T) {
	b := newBench(t)
	policy := mutatingPolicy("p", applying(`Object{spec: Object.spec{color: object.apiVersion}}`))
	policy.Spec.MatchConstraints.ResourceRules[0].APIVersions = []string{"v2"}
	b.configure(policy, mutatingBinding("b", "p"))
	got := b.must(http.MethodPost, widgetsPath, widget("x"))
	if text(got, "spec", "color") != "example.com/v2" || got.GetAPIVersion() != "example.com/v1" {
		t.Errorf("%v", got)
	}
}

// Policies run before webhooks, and those with reinvocation again after a webhook changed the
// object.
func TestPolicyReinvocation(t *testing.T) {
	b := newBench(t)
	policy := mutatingPolicy("p", jsonPatching(`[JSONPatch{op: "add", path: "/data/policy", value: "hook" in object.data ? "saw it" : "first"}]`))
	policy.Spec.ReinvocationPolicy = admissionv1.IfNeededReinvocationPolicy
	hook := newHookServer(t, patching(`[{"op": "add", "path": "/data/hook", "value": "1"}]`))
	b.configure(policy, mutatingBinding("b", "p"), mutatingHooks("hooks", mutatingHook("a.example.com", hook)))
	got := b.must(http.MethodPost, configMapsPath, configMap("x"))
	if text(got, "data", "policy") != "saw it" || text(got, "data", "hook") != "1" {
		t.Errorf("%v", got)
	}
	if asked := hook.asked(); len(asked) != 1 || !strings.Contains(string(asked[0].Request.Object.Raw), `"policy":"first"`) {
		t.Errorf("the webhook was asked %d times", len(asked))
	}
}

// Mutating policies do not apply to deletions.
func TestMutatingPoliciesSkipDeletion(t *testing.T) {
	b := newBench(t)
	b.must(http.MethodPost, configMapsPath, configMap("x"))
	policy := mutatingPolicy("p", jsonPatching(`[]`))
	policy.Spec.MatchConstraints.ResourceRules[0].Operations = []admissionv1.OperationType{admissionv1.OperationAll}
	policy.Spec.MatchConditions = []admissionv1.MatchCondition{{Name: "c", Expression: "object.data.a == '1'"}}
	b.configure(policy, mutatingBinding("b", "p"))
	b.must(http.MethodDelete, configMapsPath+"/x", "")
}
