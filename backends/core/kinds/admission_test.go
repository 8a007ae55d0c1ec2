package kinds

import (
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"portico/resource/rest"
)

const admissionGroup = ".admissionregistration.k8s.io"

const goodHook = `{"name":"a.example.com","clientConfig":{"service":{"name":"s","namespace":"n"}},"sideEffects":"None","admissionReviewVersions":["v1"],
	"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods","pods/status"]}]}`

func TestWebhookDefaults(t *testing.T) {
	v := decode[*admissionregistrationv1.ValidatingWebhookConfiguration](t, kind(t, "validatingwebhookconfigurations"+admissionGroup), `{"webhooks":[`+goodHook+`]}`)
	m := decode[*admissionregistrationv1.MutatingWebhookConfiguration](t, kind(t, "mutatingwebhookconfigurations"+admissionGroup), `{"webhooks":[`+goodHook+`]}`)
	for i, h := range append(hooksOf(v), hooksOf(m)...) {
		if **h.failurePolicy != "Fail" || **h.matchPolicy != "Equivalent" || **h.timeoutSeconds != 10 || *h.client.Service.Port != 443 ||
			*h.namespaceSelector == nil || *h.objectSelector == nil || *h.rules[0].Scope != "*" {
			t.Errorf("webhook %d: %+v", i, h)
		}
	}
	if *m.Webhooks[0].ReinvocationPolicy != admissionregistrationv1.NeverReinvocationPolicy {
		t.Errorf("reinvocation %v", *m.Webhooks[0].ReinvocationPolicy)
	}
}

func TestWebhookRules(t *testing.T) {
	const qualified = "should be a domain with at least three segments separated by dots"
	cases := []creation{
		{"good", goodHook, nil},
		{"empty", `{}`, []string{
			"webhooks[0].name: Required value",
			"webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
			"webhooks[0].clientConfig: Required value: exactly one of url or service is required",
			"webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1"}},
		{"values", strings.Replace(goodHook, `"sideEffects":"None"`,
			`"sideEffects":"Some","failurePolicy":"x","matchPolicy":"y","timeoutSeconds":31,"matchConditions":[{"name":"a","expression":"true"},{"name":"a"}]`, 1), []string{
			`webhooks[0].failurePolicy: Unsupported value: "x": supported values: "Fail", "Ignore"`,
			`webhooks[0].matchPolicy: Unsupported value: "y": supported values: "Equivalent", "Exact"`,
			`webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"`,
			`webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds`,
			`webhooks[0].matchConditions[1].expression: Required value`,
			`webhooks[0].matchConditions[1].name: Duplicate value: "a"`}},
		{"name", strings.Replace(goodHook, "a.example.com", "a.com", 1), []string{`webhooks[0].name: Invalid value: "a.com": ` + qualified}},
		{"URL", strings.Replace(goodHook, `"service":{"name":"s","namespace":"n"}`, `"url":"http:///x?q#f"`, 1), []string{
			`webhooks[0].clientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]`,
			`webhooks[0].clientConfig.url: Invalid value: "": host must be specified; desired format: https://host[/path]`,
			`webhooks[0].clientConfig.url: Invalid value: "f": fragments are not permitted in the URL`,
			`webhooks[0].clientConfig.url: Invalid value: "q": query parameters are not permitted in the URL`}},
		{"URL with a password", strings.Replace(goodHook, `"service":{"name":"s","namespace":"n"}`, `"url":"https://u:p@h/x"`, 1),
			[]string{`webhooks[0].clientConfig.url: Invalid value: "u": user information is not permitted in the URL`}},
		{"good URL", strings.Replace(goodHook, `"service":{"name":"s","namespace":"n"}`, `"url":"https://h/x"`, 1), nil},
		{"service", strings.Replace(goodHook, `"service":{"name":"s","namespace":"n"}`, `"service":{"name":"","namespace":"","port":0,"path":"a//b"}`, 1), []string{
			"webhooks[0].clientConfig.service.name: Required value",
			"webhooks[0].clientConfig.service.namespace: Required value",
			"webhooks[0].clientConfig.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
			`webhooks[0].clientConfig.service.path: Invalid value: "a//b": must start with a '/'`,
			`webhooks[0].clientConfig.service.path: Invalid value: "a//b": segment[0] may not be empty`,
			`webhooks[0].clientConfig.service.path: Invalid value: "a//b": segment[1] may not be empty`}},
		{"versions", strings.Replace(goodHook, `["v1"]`, `["v2","v2"]`, 1), []string{
			`webhooks[0].admissionReviewVersions[1]: Invalid value: "v2": duplicate version`,
			`webhooks[0].admissionReviewVersions: Invalid value: ["v2","v2"]: must include at least one of v1, v1beta1`}},
		{"two of a name", goodHook + "," + goodHook, []string{`webhooks[1].name: Duplicate value: "a.example.com"`}},
	}
	for _, plural := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"} {
		checkCreations(t, kind(t, plural+admissionGroup), `{"webhooks":[%s]}`, cases)
	}
}

// A rule that names an excluded resource gets a warning, unless it has *, which may mean others.
func TestWarningsOfExcludedResources(t *testing.T) {
	for _, plural := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"} {
		k := kind(t, plural+".admissionregistration.k8s.io")
		warnings := func(rules string) []string {
			return k.Strategy.Warnings(t.Context(), decode[rest.Object](t, k, `{"metadata":{"name":"a"},"webhooks":[{"name":"a.example.com","rules":[`+rules+`]}]}`), nil)
		}
		for _, rule := range []string{
			`{"apiGroups":["authentication.k8s.io"],"resources":["*"]}`, `{"apiGroups":["*"],"resources":["tokenreviews"]}`, `{"apiGroups":[""],"resources":["tokenreviews"]}`,
		} {
			if got := warnings(rule); got != nil {
				t.Errorf("%s: %v", rule, got)
			}
		}
		got := warnings(`{"apiGroups":[""],"resources":["pods"]},{"apiGroups":["authorization.k8s.io","authorization.k8s.io"],"resources":["subjectaccessreviews","x"]}`)
		if want := "webhooks[0].rules[1]: subjectaccessreviews.authorization.k8s.io is excluded from admission webhooks; this rule will have no effect"; len(got) != 1 || got[0] != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// An update may keep what the stored object already violates.
func TestWebhookRatchet(t *testing.T) {
	some := strings.Replace(goodHook, `"None"`, `"Some"`, 1)
	condition := strings.Replace(goodHook, `"sideEffects"`, `"matchConditions":[{"name":"a"}],"sideEffects"`, 1)
	hooks := func(h string) string { return `{"webhooks":[` + h + `]}` }
	checkChanges(t, kind(t, "mutatingwebhookconfigurations"+admissionGroup), []changeOne{
		{"side effects stay", hooks(some), hooks(some), nil},
		{"side effects come", hooks(goodHook), hooks(some),
			[]string{`webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"`}},
		{"condition stays", hooks(condition), hooks(condition), nil},
		{"condition comes", hooks(goodHook), hooks(condition), []string{"webhooks[0].matchConditions[0].expression: Required value"}},
		{"names stay", hooks(goodHook + "," + goodHook), hooks(goodHook + "," + goodHook), nil},
		{"one more", hooks(goodHook), hooks(goodHook + "," + goodHook), []string{`webhooks[1].name: Duplicate value: "a.example.com"`}},
	})
}

func TestRuleResources(t *testing.T) {
	for _, c := range []struct {
		resources []string
		want      []string
	}{
		{[]string{"*"}, nil},
		{[]string{"*/*"}, nil},
		{[]string{"*", "*/scale"}, nil},
		{[]string{"pods", "pods/*"}, nil},
		{nil, []string{"r: Required value"}},
		{[]string{""}, []string{"r[0]: Required value"}},
		{[]string{"pods/*", "pods/log"}, []string{`r[1]: Invalid value: "pods/log": if 'pods/*' is present, must not specify pods/log`}},
		{[]string{"*/log", "pods/log"}, []string{`r[1]: Invalid value: "pods/log": if '*/log' is present, must not specify pods/log`}},
		{[]string{"*/*", "pods"}, []string{`r: Invalid value: ["*/*","pods"]: if '*/*' is present, must not specify other resources`}},
		{[]string{"pods", "*"}, []string{`r: Invalid value: ["pods","*"]: if '*' is present, must not specify other resources without subresources`}},
	} {
		t.Run(fmt.Sprint(c.resources), func(t *testing.T) {
			expect(t, validateRuleResources(c.resources, fieldPath("r")), c.want...)
		})
	}
	all := admissionregistrationv1.RuleWithOperations{Operations: []admissionregistrationv1.OperationType{"*", "CREATE", "PATCH"}}
	all.APIGroups, all.APIVersions, all.Resources = []string{"*", "a"}, []string{""}, []string{"*"}
	all.Scope = new(admissionregistrationv1.ScopeType("World"))
	expect(t, validateRuleWithOperations(&all, fieldPath("r")),
		`r.operations: Invalid value: ["*","CREATE","PATCH"]: if '*' is present, must not specify other operations`,
		`r.operations[2]: Unsupported value: "PATCH": supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"`,
		`r.apiGroups: Invalid value: ["*","a"]: if '*' is present, must not specify other API groups`,
		`r.apiVersions[0]: Required value`,
		`r.scope: Unsupported value: "World": supported values: "*", "Cluster", "Namespaced"`)
}

const goodConstraints = `"matchConstraints":{"resourceRules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}]}`

func TestValidatingPolicyRules(t *testing.T) {
	checkCreations(t, kind(t, "validatingadmissionpolicies"+admissionGroup), `{"metadata":{"name":"p"},"spec":{%s}}`, []creation{
		{"good", goodConstraints + `,"validations":[{"expression":"true","reason":"Forbidden"}],"auditAnnotations":[{"key":"k","valueExpression":"'v'"}]`, nil},
		{"empty", ``, []string{
			"spec.matchConstraints: Required value",
			"spec.validations: Required value: validations or auditAnnotations must contain at least one item",
			"spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item"}},
		{"no rules", `"matchConstraints":{},"validations":[{"expression":"true"}]`, []string{"spec.matchConstraints.resourceRules: Required value"}},
		{"names of resources", `"matchConstraints":{"resourceRules":[{"resourceNames":["a/b","c","c"],"operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"]}]},"validations":[{"expression":"true"}]`, []string{
			`spec.matchConstraints.resourceRules[0].resourceNames[0]: Invalid value: "a/b": may not contain '/'`,
			`spec.matchConstraints.resourceRules[0].resourceNames[2]: Duplicate value: "c"`}},
		{"parameter kind", `"paramKind":{"apiVersion":"a/b/c","kind":"0"},` + goodConstraints + `,"validations":[{"expression":"true"}]`, []string{
			`spec.paramKind.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c`,
			`spec.paramKind.kind: Invalid value: "0": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case ` +
				`alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', ` +
				`regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')`}},
		{"texts", goodConstraints + `,"failurePolicy":"x","variables":[{"name":"if","expression":" "}],"validations":[{"expression":" ","message":" ","messageExpression":" ","reason":"Because"},{"expression":"true","message":"a\nb"}]`, []string{
			`spec.failurePolicy: Unsupported value: "x": supported values: "Fail", "Ignore"`,
			`spec.variables[0].name: Invalid value: "if": must be a valid CEL identifier`,
			`spec.variables[0].expression: Required value: expression is not specified`,
			`spec.validations[0].expression: Required value: expression is not specified`,
			`spec.validations[0].messageExpression: Invalid value: " ": must be non-empty if specified`,
			`spec.validations[0].message: Invalid value: " ": must be non-empty if specified`,
			`spec.validations[0].reason: Unsupported value: "Because": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge"`,
			`spec.validations[1].message: Invalid value: "a\nb": must not contain line breaks`}},
		{"audit", goodConstraints + `,"auditAnnotations":[{"key":"k","valueExpression":""},{"key":"k","valueExpression":"'v'"}]`, []string{
			`spec.auditAnnotations[0].valueExpression: Required value: valueExpression is not specified`,
			`spec.auditAnnotations[1].key: Duplicate value: "k"`}},
	})
}

func TestValidatingPolicyStatus(t *testing.T) {
	k := kind(t, "validatingadmissionpolicies"+admissionGroup)
	const stored = `{"metadata":{"name":"p","labels":{"a":"b"}},"spec":{"paramKind":{"apiVersion":"v1","kind":"ConfigMap"}}}`
	old := decode[*admissionregistrationv1.ValidatingAdmissionPolicy](t, k, stored)
	p := decode[*admissionregistrationv1.ValidatingAdmissionPolicy](t, k,
		`{"metadata":{"name":"p","labels":{"c":"d"}},"spec":{},"status":{"observedGeneration":1,"typeChecking":{"expressionWarnings":[{"fieldRef":"","warning":""}]}}}`)
	status := k.Subresources[0].Strategy
	status.PrepareUpdate(t.Context(), p, old)
	if p.Spec.ParamKind == nil || p.Labels["a"] != "b" || p.Status.ObservedGeneration != 1 {
		t.Errorf("status update changed more than the status: %+v", p)
	}
	expect(t, status.ValidateUpdate(t.Context(), p, old),
		"status.typeChecking.expressionWarnings[0].warning: Required value",
		"status.typeChecking.expressionWarnings[0].fieldRef: Required value")
	main := decode[*admissionregistrationv1.ValidatingAdmissionPolicy](t, k, stored)
	k.Strategy.PrepareUpdate(t.Context(), main, p)
	if main.Status.ObservedGeneration != 1 {
		t.Errorf("an update of the main resource lost the status: %+v", main)
	}
	k.Strategy.PrepareCreate(t.Context(), main)
	if main.Status.ObservedGeneration != 0 {
		t.Error("a new policy has a status")
	}
}

func TestBindingRules(t *testing.T) {
	validating, mutating := kind(t, "validatingadmissionpolicybindings"+admissionGroup), kind(t, "mutatingadmissionpolicybindings"+admissionGroup)
	b := decode[rest.Object](t, validating, `{"spec":{"paramRef":{"name":"a","selector":{}},"validationActions":["Deny","Warn","Warn","Log"]}}`)
	expect(t, validating.Strategy.Validate(t.Context(), b),
		"spec.policyName: Required value",
		"spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
		"spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
		"spec.paramRef.parameterNotFoundAction: Required value",
		`spec.validationActions[2]: Duplicate value: "Warn"`,
		`spec.validationActions[3]: Unsupported value: "Log": supported values: "Audit", "Deny", "Warn"`,
		`spec.validationActions: Invalid value: ["Deny","Warn","Warn","Log"]: must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)`)
	b = decode[rest.Object](t, validating, `{"spec":{"policyName":"p","paramRef":{"parameterNotFoundAction":"Ask"}}}`)
	expect(t, validating.Strategy.Validate(t.Context(), b),
		"spec.paramRef: Required value: one of name or selector must be specified",
		`spec.paramRef.parameterNotFoundAction: Unsupported value: "Ask": supported values: "Deny", "Allow"`,
		"spec.validationActions: Required value")
	b = decode[rest.Object](t, mutating, `{"spec":{"policyName":"p","matchResources":{"resourceRules":[{"operations":["DELETE"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"]}]}}}`)
	expect(t, mutating.Strategy.Validate(t.Context(), b),
		`spec.matchResources.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONNECT", "CREATE", "UPDATE"`)
}

func TestMutatingPolicyRules(t *testing.T) {
	checkCreations(t, kind(t, "mutatingadmissionpolicies"+admissionGroup), `{"metadata":{"name":"p"},"spec":{%s}}`, []creation{
		{"good", goodConstraints + `,"reinvocationPolicy":"Never","mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: \"remove\", path: \"/a\"}]"}}]`, nil},
		{"empty", ``, []string{
			"spec.matchConstraints: Required value",
			"spec.mutations: Required value: mutations must contain at least one item",
			"spec.reinvocationPolicy: Required value"}},
		{"mutations", goodConstraints + `,"reinvocationPolicy":"Always","mutations":[{"patchType":""},{"patchType":"XML"},
			{"patchType":"ApplyConfiguration","jsonPatch":{"expression":"[JSONPatch{op: \"remove\", path: \"/a\"}]"}},{"patchType":"JSONPatch","jsonPatch":{"expression":" "}}]`, []string{
			"spec.mutations[0].patchType: Required value",
			`spec.mutations[1].patchType: Unsupported value: "XML": supported values: "ApplyConfiguration", "JSONPatch"`,
			"spec.mutations[2].applyConfiguration: Required value: must be specified when patchType is ApplyConfiguration",
			`spec.mutations[2].jsonPatch: Invalid value: "{jsonPatch}": must not be specified when patchType is ApplyConfiguration`,
			"spec.mutations[3].jsonPatch.expression: Required value",
			`spec.reinvocationPolicy: Unsupported value: "Always": supported values: "IfNeeded", "Never"`}},
		{"delete", strings.Replace(goodConstraints, "CREATE", "DELETE", 1) + `,"reinvocationPolicy":"Never","mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: \"remove\", path: \"/a\"}]"}}]`,
			[]string{`spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONNECT", "CREATE", "UPDATE"`}},
	})
}

func TestPolicyDefaults(t *testing.T) {
	k := kind(t, "mutatingadmissionpolicies"+admissionGroup)
	p := decode[*admissionregistrationv1.MutatingAdmissionPolicy](t, k, `{"spec":{`+goodConstraints+`}}`)
	m := p.Spec.MatchConstraints
	if *p.Spec.FailurePolicy != "Fail" || *m.MatchPolicy != "Equivalent" || m.NamespaceSelector == nil || m.ObjectSelector == nil ||
		*m.ResourceRules[0].Scope != "*" || p.Spec.ReinvocationPolicy != "" {
		t.Errorf("got %+v", p.Spec)
	}
}
