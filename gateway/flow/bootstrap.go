package flow

import (
	flowv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const autoupdateAnnotation = "apf.kubernetes.io/autoupdate-spec"

// mandatory objects always exist and have a fixed spec.
func mandatory(name string) bool { return name == "exempt" || name == "catch-all" }

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Annotations: map[string]string{autoupdateAnnotation: "true"}}
}

// bootstrapLevels are upstream's bootstrap priority levels.
func bootstrapLevels() []*flowv1.PriorityLevelConfiguration {
	zero := int32(0)
	limited := func(name string, shares, lendable, queues, hand int32) *flowv1.PriorityLevelConfiguration {
		l := &flowv1.LimitedPriorityLevelConfiguration{
			NominalConcurrencyShares: &shares, LendablePercent: &lendable,
			LimitResponse: flowv1.LimitResponse{Type: flowv1.LimitResponseTypeReject},
		}
		if queues > 0 {
			l.LimitResponse = flowv1.LimitResponse{
				Type:    flowv1.LimitResponseTypeQueue,
				Queuing: &flowv1.QueuingConfiguration{Queues: queues, HandSize: hand, QueueLengthLimit: 50},
			}
		}
		return &flowv1.PriorityLevelConfiguration{
			ObjectMeta: meta(name),
			Spec:       flowv1.PriorityLevelConfigurationSpec{Type: flowv1.PriorityLevelEnablementLimited, Limited: l},
		}
	}
	return []*flowv1.PriorityLevelConfiguration{
		{
			ObjectMeta: meta("exempt"),
			Spec: flowv1.PriorityLevelConfigurationSpec{
				Type:   flowv1.PriorityLevelEnablementExempt,
				Exempt: &flowv1.ExemptPriorityLevelConfiguration{NominalConcurrencyShares: &zero, LendablePercent: &zero},
			},
		},
		limited("catch-all", 5, 0, 0, 0),
		limited("leader-election", 10, 0, 16, 4),
		limited("node-high", 40, 25, 64, 6),
		limited("system", 30, 33, 64, 6),
		limited("workload-high", 40, 50, 128, 6),
		limited("workload-low", 100, 90, 128, 6),
		limited("global-default", 20, 50, 128, 6),
	}
}

// bootstrapSchemas are upstream's bootstrap flow schemas.
func bootstrapSchemas() []*flowv1.FlowSchema {
	byUser, byNamespace := flowv1.FlowDistinguisherMethodByUserType, flowv1.FlowDistinguisherMethodByNamespaceType
	everybody := []flowv1.Subject{groupSubject("system:authenticated"), groupSubject("system:unauthenticated")}
	everything := rule(everybody, anyResource(), anyURL())
	probes := flowv1.PolicyRulesWithSubjects{
		Subjects: everybody,
		NonResourceRules: []flowv1.NonResourcePolicyRule{{
			Verbs: []string{"get"}, NonResourceURLs: []string{"/healthz", "/readyz", "/livez"},
		}},
	}
	leases := func(subjects ...flowv1.Subject) flowv1.PolicyRulesWithSubjects {
		return flowv1.PolicyRulesWithSubjects{Subjects: subjects, ResourceRules: []flowv1.ResourcePolicyRule{{
			Verbs: []string{"get", "create", "update"}, APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Namespaces: []string{"*"},
		}}}
	}
	nodes := groupSubject("system:nodes")
	nodeHigh := flowv1.PolicyRulesWithSubjects{Subjects: []flowv1.Subject{nodes}, ResourceRules: []flowv1.ResourcePolicyRule{
		{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, ClusterScope: true, Namespaces: []string{"*"}},
		{Verbs: []string{"*"}, APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Namespaces: []string{"*"}},
	}}
	return []*flowv1.FlowSchema{
		schemaOf("exempt", "exempt", 1, nil, rule([]flowv1.Subject{groupSubject("system:masters")}, anyResource(), anyURL())),
		schemaOf("probes", "exempt", 2, nil, probes),
		schemaOf("system-leader-election", "leader-election", 100, &byUser, leases(userSubject("system:kube-controller-manager"),
			userSubject("system:kube-scheduler"), accountSubject("kube-system", "*"))),
		schemaOf("system-node-high", "node-high", 400, &byUser, nodeHigh),
		schemaOf("system-nodes", "system", 500, &byUser, rule([]flowv1.Subject{nodes}, anyResource(), anyURL())),
		schemaOf("kube-controller-manager", "workload-high", 800, &byNamespace, rule([]flowv1.Subject{userSubject("system:kube-controller-manager")}, anyResource(), anyURL())),
		schemaOf("kube-scheduler", "workload-high", 800, &byNamespace, rule([]flowv1.Subject{userSubject("system:kube-scheduler")}, anyResource(), anyURL())),
		schemaOf("kube-system-service-accounts", "workload-high", 900, &byNamespace, rule([]flowv1.Subject{accountSubject("kube-system", "*")}, anyResource(), anyURL())),
		schemaOf("service-accounts", "workload-low", 9000, &byUser, rule([]flowv1.Subject{groupSubject("system:serviceaccounts")}, anyResource(), anyURL())),
		schemaOf("global-default", "global-default", 9900, &byUser, everything),
		schemaOf("catch-all", "catch-all", 10000, &byUser, everything),
	}
}

func schemaOf(name, level string, precedence int32, by *flowv1.FlowDistinguisherMethodType, rules ...flowv1.PolicyRulesWithSubjects) *flowv1.FlowSchema {
	s := &flowv1.FlowSchema{ObjectMeta: meta(name), Spec: flowv1.FlowSchemaSpec{
		PriorityLevelConfiguration: flowv1.PriorityLevelConfigurationReference{Name: level}, MatchingPrecedence: precedence, Rules: rules,
	}}
	if by != nil {
		s.Spec.DistinguisherMethod = &flowv1.FlowDistinguisherMethod{Type: *by}
	}
	return s
}

func rule(subjects []flowv1.Subject, res flowv1.ResourcePolicyRule, url flowv1.NonResourcePolicyRule) flowv1.PolicyRulesWithSubjects {
	return flowv1.PolicyRulesWithSubjects{
		Subjects: subjects, ResourceRules: []flowv1.ResourcePolicyRule{res}, NonResourceRules: []flowv1.NonResourcePolicyRule{url},
	}
}

func anyResource() flowv1.ResourcePolicyRule {
	return flowv1.ResourcePolicyRule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, ClusterScope: true, Namespaces: []string{"*"}}
}

func anyURL() flowv1.NonResourcePolicyRule {
	return flowv1.NonResourcePolicyRule{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}
}

func groupSubject(name string) flowv1.Subject {
	return flowv1.Subject{Kind: flowv1.SubjectKindGroup, Group: &flowv1.GroupSubject{Name: name}}
}

func userSubject(name string) flowv1.Subject {
	return flowv1.Subject{Kind: flowv1.SubjectKindUser, User: &flowv1.UserSubject{Name: name}}
}

func accountSubject(namespace, name string) flowv1.Subject {
	return flowv1.Subject{Kind: flowv1.SubjectKindServiceAccount, ServiceAccount: &flowv1.ServiceAccountSubject{Namespace: namespace, Name: name}}
}
