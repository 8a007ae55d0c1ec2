package controllers

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	admissionv1apply "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"k8s.io/client-go/discovery"
)

// policyStatusManager is the field manager of upstream's controller.
const policyStatusManager = "validatingadmissionpolicy-status"

// policyStatus sets the status of ValidatingAdmissionPolicies, once for each generation: the warnings of upstream's type
// checker for the expressions, with the schemas that the gateway publishes. A kind that no server has is not checked.
func policyStatus(ctx context.Context, env *Env) error {
	client, err := discovery.NewDiscoveryClientForConfig(env.Gateway)
	if err != nil {
		return fmt.Errorf("make client of OpenAPI documents: %w", err)
	}
	checker := &validating.TypeChecker{SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: client}, RestMapper: env.Mapper}
	queue, policies := env.NewQueue("validatingadmissionpolicies"), env.Informers.Admissionregistration().V1().ValidatingAdmissionPolicies()
	Handle(env, policies.Informer(), func(_, p *admissionv1.ValidatingAdmissionPolicy) {
		if p != nil && p.Status.ObservedGeneration < p.Generation {
			queue.Add(p.Name)
		}
	})
	return env.Work(ctx, Loop{Queue: queue, Workers: 1, Sync: func(ctx context.Context, _, name string) error {
		p, err := policies.Lister().Get(name)
		if err != nil || p.Status.ObservedGeneration >= p.Generation {
			return ignoreNotFound(err)
		}
		checked := admissionv1apply.TypeChecking()
		for _, w := range checker.Check(p) {
			checked.WithExpressionWarnings(admissionv1apply.ExpressionWarning().WithFieldRef(w.FieldRef).WithWarning(w.Warning))
		}
		status := admissionv1apply.ValidatingAdmissionPolicyStatus().WithObservedGeneration(p.Generation).WithTypeChecking(checked)
		_, err = env.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies().ApplyStatus(ctx,
			admissionv1apply.ValidatingAdmissionPolicy(name).WithStatus(status), metav1.ApplyOptions{FieldManager: policyStatusManager, Force: true})
		return ignoreNotFound(err)
	}})
}
