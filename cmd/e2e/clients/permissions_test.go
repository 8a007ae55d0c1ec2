package clients

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"portico/cmd/e2e"
)

// permission is a request of a user that may update everything that is served, and nothing else
// but what may grants.
type permission struct {
	name                      string
	may                       []rbacv1.PolicyRule
	made                      string // what the administrator stores at path before
	method, path, body, patch string
	want                      string // part of the refusal; "": it is permitted
}

func may(verb, group, res string, names ...string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{res}, ResourceNames: names}}
}

// served are the rights that the gateway checks for the requests of the tests.
var served = []rbacv1.PolicyRule{
	{
		Verbs: []string{"get", "create", "patch"}, APIGroups: []string{"certificates.k8s.io"},
		Resources: []string{
			"certificatesigningrequests", "certificatesigningrequests/approval", "certificatesigningrequests/status",
			"clustertrustbundles", "podcertificaterequests", "podcertificaterequests/status",
		},
	},
	{
		Verbs: []string{"get", "create", "patch"}, APIGroups: []string{"admissionregistration.k8s.io"},
		Resources: []string{
			"validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
		},
	},
	{Verbs: []string{"patch"}, APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims", "resourceclaims/status"}},
}

const (
	certificates = "/apis/certificates.k8s.io/v1/"
	admissionAPI = "/apis/admissionregistration.k8s.io/v1/"
)

// signingRequest returns a CertificateSigningRequest without a name.
func signingRequest(t *testing.T, signer, organization string, usages string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "jane", Organization: []string{organization}},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	request := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	return fmt.Sprintf(`{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{"name":"NAME"},
		"spec":{"signerName":%q,"usages":%s,"request":%q}}`, signer, usages, base64.StdEncoding.EncodeToString(request))
}

// authorityPEM returns the certificate of an authority.
func authorityPEM(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// certificatePermissions are about the signers of certificates.
func certificatePermissions(t *testing.T) []permission {
	const signers, group = "signers", "certificates.k8s.io"
	request := signingRequest(t, "example.com/x", "people", `["client auth"]`)
	masters := signingRequest(t, "kubernetes.io/kube-apiserver-client", "system:masters", `["client auth"]`)
	people := signingRequest(t, "kubernetes.io/kube-apiserver-client", "people", `["client auth"]`)
	certificate := authorityPEM(t)
	approve := `{"status":{"conditions":[{"type":"Approved","status":"True","reason":"r","message":"m"}]}}`
	sign := fmt.Sprintf(`{"status":{"certificate":%q}}`, base64.StdEncoding.EncodeToString([]byte(certificate)))
	fail := `{"status":{"conditions":[{"type":"Failed","status":"True","reason":"r","message":"m"}]}}`
	approval := permission{made: request, path: certificates + "certificatesigningrequests/NAME/approval", patch: approve}
	status := permission{made: request, path: certificates + "certificatesigningrequests/NAME/status", patch: sign}
	creation := permission{method: http.MethodPost, path: certificates + "certificatesigningrequests"}
	const bundleOf = `{"apiVersion":"certificates.k8s.io/v1","kind":"ClusterTrustBundle","metadata":{"name":"example.com:b:NAME"},"spec":{"signerName":"example.com/b","trustBundle":%q}}`
	bundle := permission{method: http.MethodPost, path: certificates + "clustertrustbundles", body: fmt.Sprintf(bundleOf, certificate)}
	stored := permission{made: bundle.body, path: certificates + "clustertrustbundles/example.com:b:NAME"}
	pod := permission{
		made: `{"apiVersion":"certificates.k8s.io/v1","kind":"PodCertificateRequest","metadata":{"name":"NAME"},"spec":{
			"signerName":"example.com/p","podName":"a","podUID":"1b1d","serviceAccountName":"default","serviceAccountUID":"2b2d","nodeName":"n1","nodeUID":"3b3d",
			"stubPKCS10Request":"MIG6MGICAQAwADBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABIFDh+yPOShbNxXJKpiCfrs1sOLApqB0u8onEt1L53CJfEg/eXkJAkhk97ywgiqT81gjhzMLHpgg/qlCzLQ/8degADAKBggqhkjOPQQDAgNIADBFAiEAnHCswI4QVtzvFX+DHQQ5d6IWijSLUuaNFbaGSl2L2joCIEI/aQhT+idLnXZSeKlPIXU4c8tjOtv2FcPuo+ix72JH"}}`,
		path:  certificates + "namespaces/NAMESPACE/podcertificaterequests/NAME/status",
		patch: `{"status":{"conditions":[{"type":"Denied","status":"True","reason":"r","message":"m","lastTransitionTime":"2025-01-01T00:00:00Z"}]}}`,
	}
	with := func(p permission, name string, may []rbacv1.PolicyRule, want string) permission {
		p.name, p.may, p.want = name, may, want
		return p
	}
	changed := func(p permission, patch string) permission { p.patch = patch; return p }
	posted := func(p permission, body string) permission { p.body = body; return p }
	notApprove, notSign := `user not permitted to approve requests with signerName \"example.com/x\"`, `user not permitted to sign requests with signerName \"example.com/x\"`
	return []permission{
		with(approval, "approve without a right", nil, notApprove),
		with(approval, "approve with the right to sign", may("sign", group, signers), notApprove),
		with(approval, "approve for another signer", may("approve", group, signers, "example.com/y", "example.org/*"), notApprove),
		with(approval, "approve for the signer", may("approve", group, signers, "example.com/x"), ""),
		with(approval, "approve for the domain", may("approve", group, signers, "example.com/*"), ""),
		with(status, "sign without a right", may("approve", group, signers), notSign),
		with(status, "sign for the signer", may("sign", group, signers, "example.com/x"), ""),
		with(changed(status, fail), "fail without a right", nil, notSign),
		with(changed(status, fail), "fail for the domain", may("sign", group, signers, "example.com/*"), ""),
		with(changed(status, `{"metadata":{"labels":{"a":"b"}}}`), "a status that does not change", nil, ""),
		with(posted(creation, masters), "request a client certificate of system:masters", may("*", "*", "*"), "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"),
		with(posted(creation, people), "request a client certificate", nil, ""),
		with(bundle, "attest without a right", nil, `user not permitted to attest for signerName \"example.com/b\"`),
		with(bundle, "attest for the signer", may("attest", group, signers, "example.com/b"), ""),
		with(changed(stored, `{"metadata":{"finalizers":["example.com/a"]}}`), "finalizers of a bundle", nil, ""),
		with(changed(stored, `{"metadata":{"finalizers":[],"labels":{"a":"b"}}}`), "labels of a bundle", nil, "user not permitted to attest"),
		with(pod, "deny the certificate of a pod", nil, `is not permitted to \"sign\" for signer \"example.com/p\"`),
		with(pod, "deny the certificate of a pod for the signer", may("sign", group, signers, "example.com/p"), ""),
	}
}

// claimPermissions are about the status of resource claims.
func claimPermissions() []permission {
	const allocation = `"allocation":{"devices":{"results":[{"request":"one","driver":"gpu.example.com","pool":"p","device":"d"}]},
		"nodeSelector":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]}]}}`
	claim := permission{
		made: `{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"NAME"},
			"spec":{"devices":{"requests":[{"name":"one","exactly":{"deviceClassName":"gpu.example.com"}}]}}}`,
		path: "/apis/resource.k8s.io/v1/namespaces/NAMESPACE/resourceclaims/NAME/status",
	}
	const devices = `,"devices":[{"driver":"gpu.example.com","pool":"p","device":"d","data":{"a":1}}]`
	const group, binding, driver = "resource.k8s.io", "resourceclaims/binding", "resourceclaims/driver"
	with := func(name, patch string, may []rbacv1.PolicyRule, want string) permission {
		p := claim
		p.name, p.patch, p.may, p.want = name, `{"status":{`+patch+`}}`, may, want
		return p
	}
	bind := may("patch", group, binding)
	return []permission{
		with("bind a claim without a right", allocation, may("*", group, driver),
			`changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"patch\" permission`),
		with("bind a claim with the right for another verb", allocation, may("update", group, binding), "changing status.allocation"),
		with("bind a claim", allocation, bind, ""),
		with("report on devices without a right", allocation+devices, bind, `changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[arbitrary-node:patch]\" permission`),
		with("report on devices of another driver", allocation+devices, append(may("*", group, driver, "nic.example.com"), bind...), "changing status.devices"),
		with("report on devices of its node alone", allocation+devices, append(may("associated-node:patch", group, driver), bind...), "changing status.devices"),
		with("report on devices", allocation+devices, append(may("arbitrary-node:patch", group, driver, "gpu.example.com"), bind...), ""),
	}
}

// policyPermissions are about the parameters of admission policies.
func policyPermissions() (all []permission) {
	const matching = `"matchConstraints":{"resourceRules":[{"apiGroups":["example.com"],"apiVersions":["v1"],"resources":["nothing"],"operations":["CREATE"]}]}`
	for kind, action := range map[string]string{
		"Validating": `"validations":[{"expression":"true"}]`,
		"Mutating":   `"reinvocationPolicy":"Never","mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{}"}}]`,
	} {
		object := func(of, spec string) string {
			return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"%sAdmissionPolicy%s","metadata":{"name":"NAME"},"spec":{%s}}`, kind, of, spec)
		}
		path := admissionAPI + strings.ToLower(kind) + "admissionpolicies"
		policy := permission{
			method: http.MethodPost, path: path,
			body: object("", `"paramKind":{"apiVersion":"v1","kind":"Secret"},`+matching+","+action),
		}
		actions := ""
		if kind == "Validating" {
			actions = `"validationActions":["Deny"],`
		}
		binding := permission{
			made: policy.body, method: http.MethodPost, path: strings.TrimSuffix(path, "ies") + "ybindings",
			body: object("Binding", actions+`"policyName":"NAME","paramRef":{"name":"s","namespace":"default","parameterNotFoundAction":"Allow"}`),
		}
		with := func(p permission, name string, may []rbacv1.PolicyRule, want string) {
			p.name, p.may, p.want = kind+" "+name, may, want
			all = append(all, p)
		}
		with(policy, "policy without a right", may("get", "", "configmaps"), `must have \"get\" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)`)
		with(policy, "policy with the right to some", may("get", "", "secrets", "s"), "must have")
		with(policy, "policy", may("get", "", "secrets"), "")
		with(binding, "binding without a right", may("get", "", "secrets", "t"), `permission on the object referenced by paramRef`)
		with(binding, "binding", may("get", "", "secrets", "s"), "")
		binding.made, binding.body = "", strings.Replace(binding.body, `"policyName":"NAME"`, `"policyName":"none"`, 1)
		with(binding, "binding of no policy", may("get", "", "secrets"), "unable to get policy none to determine minimum required permissions")
	}
	return all
}

// Signers, bindings of claims and parameters of policies need rights beyond that to write.
func TestPermissionsBeyondWriting(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	admin := up.Client(t)
	namespace := e2e.NewNamespace(t, admin)
	for i, p := range append(append(certificatePermissions(t), claimPermissions()...), policyPermissions()...) {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			name := fmt.Sprintf("permission-%d", i)
			p.run(t, up, admin, namespace, name)
		})
	}
}

func (p permission) run(t *testing.T, up *e2e.Installation, admin kubernetes.Interface, namespace, name string) {
	grant(t, admin, name, append(p.may, served...))
	user := up.Config(t)
	user.Impersonate = rest.ImpersonationConfig{UserName: name}
	fill := strings.NewReplacer("NAMESPACE", namespace, "NAME", name).Replace
	path, created := fill(p.path), ""
	if p.made != "" {
		created = collection(path, name)
		if p.method == http.MethodPost {
			created = strings.Replace(path, "bindings", "", 1)
			created = strings.Replace(created, "policy", "policies", 1)
		}
		send(t, up, up.Config(t), http.MethodPost, created, fill(p.made), http.StatusCreated, "")
	}
	method, body, code, kind := http.MethodPatch, p.patch, http.StatusOK, "application/merge-patch+json"
	if p.method != "" {
		method, body, code, kind = p.method, fill(p.body), http.StatusCreated, "application/json"
	}
	client := e2e.HTTPClient(t, user)
	e2e.Eventually(t, p.name, func() error { // the role may not be in effect yet
		resp, answer, err := e2e.Ask(t.Context(), client, method, up.Endpoint+path, body, "Content-Type: "+kind)
		switch {
		case err != nil:
			return err
		case p.want == "" && resp.StatusCode != code, p.want != "" && (resp.StatusCode < 400 || !strings.Contains(answer, p.want)):
			return fmt.Errorf("%d %s", resp.StatusCode, answer)
		}
		return nil
	})
}

// collection returns the path of the objects that path, of the object name or of a subresource
// of it, is one of.
func collection(path, name string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if part == name || strings.HasSuffix(part, ":"+name) {
			return strings.Join(parts[:i], "/")
		}
	}
	return path
}

func send(t *testing.T, up *e2e.Installation, cfg *rest.Config, method, path, body string, code int, want string) {
	t.Helper()
	resp, answer, err := e2e.Ask(t.Context(), e2e.HTTPClient(t, cfg), method, up.Endpoint+path, body)
	if err != nil || resp.StatusCode != code || !strings.Contains(answer, want) {
		t.Fatalf("%s %s: %v %s, want %d", method, path, err, answer, code)
	}
}

// grant gives a user the rules, everywhere.
func grant(t *testing.T, admin kubernetes.Interface, user string, rules []rbacv1.PolicyRule) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: user}
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
