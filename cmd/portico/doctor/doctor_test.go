package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"portico/cmd/e2e"
)

// examine runs the command and returns its results and its error.
func examine(t *testing.T, args ...string) (map[string]Result, error) {
	t.Helper()
	cmd := New()
	var out strings.Builder
	cmd.SetArgs(append([]string{"-o", "json"}, args...))
	cmd.SetOut(&out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(t.Context())
	var all struct{ Checks []Result }
	if out.Len() > 0 {
		if err := json.Unmarshal([]byte(out.String()), &all); err != nil {
			t.Fatal(err)
		}
	}
	byName := map[string]Result{}
	for _, r := range all.Checks {
		byName[r.Check] = r
	}
	return byName, err
}

// badObjects are objects that make a check fail in an installation.
var badObjects = []struct {
	check  string
	want   verdict
	text   string
	object string
}{
	{"apis", failed, "v1.doctor.example.com: ServiceNotFound", `{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.doctor.example.com}, spec: {group: doctor.example.com,
  version: v1, groupPriorityMinimum: 100, versionPriority: 100, insecureSkipTLSVerify: true, service: {namespace: nowhere, name: api}}}`},
	{"trust", warns, "APIService v1.doctor2.example.com: insecureSkipTLSVerify", `{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.doctor2.example.com}, spec: {group: doctor2.example.com,
  version: v1, groupPriorityMinimum: 100, versionPriority: 100, insecureSkipTLSVerify: true, service: {namespace: nowhere, name: api}}}`},
	{"endpoints", failed, "away has no healthy endpoint", `{apiVersion: gateway.portico.dev/v1alpha1, kind: Backend, metadata: {name: away}, spec: {endpoints: [{url: "https://127.0.0.1:1"}]}}`},
	{"single-endpoints", warns, "away", `{apiVersion: gateway.portico.dev/v1alpha1, kind: Backend, metadata: {name: away}, spec: {endpoints: [{url: "https://127.0.0.1:1"}]}}`},
	{"webhooks", failed, "asks/nobody.example.com: there is no Service default/nobody", webhookOf("asks", "configmaps", "nobody.example.com")},
	{"webhook-scope", warns, "all/everything.example.com", webhookOf("all", "*", "everything.example.com")},
	{"definitions", failed, "doctors.medicine.example.com is not NamesAccepted", `{apiVersion: v1, kind: List, items: [` +
		definitionOf("physicians", "Physician", "") + `, ` + definitionOf("doctors", "Doctor", ", shortNames: [physicians]") + `]}`},
	{"anonymous", failed, "/api/v1/namespaces", `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: open}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:anonymous"}]}`},
	{"cluster-admin", failed, "open makes system:anonymous an administrator", `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: open}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:anonymous"}]}`},
}

func webhookOf(name, resources, webhook string) string {
	return fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: %s}, webhooks: [{name: %s,
  admissionReviewVersions: [v1], sideEffects: None, clientConfig: {service: {namespace: default, name: nobody}}, matchPolicy: Exact,
  rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: [CONNECT], resources: [%q]}]}]}`, name, webhook, resources)
}

func definitionOf(plural, kind, more string) string {
	return fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %s.medicine.example.com}, spec: {group: medicine.example.com, scope: Cluster,
  names: {plural: %s, kind: %s%s}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`, plural, plural, kind, more)
}

// An installation passes all checks; objects that break it, a user without rights, and its end are
// found.
func TestInstallation(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, filepath.Join(t.TempDir(), "data"))
	at := "--data-dir=" + up.Dir
	e2e.Eventually(t, "all checks pass", func() error {
		results, err := examine(t, at, "--write")
		for _, r := range results {
			// The disk and the clock are those of the machine that runs the test.
			if r.Verdict != good && r.Check != "systemd" && !strings.HasPrefix(r.Check, "disk-") && r.Check != "memory" {
				err = errors.Join(err, fmt.Errorf("%+v", r))
			}
		}
		return err
	})
	results, err := examine(t, at)
	for _, name := range []string{"disk-sync", "tokens"} {
		if results[name].Verdict != skipped || err != nil {
			t.Errorf("without --write: %+v, %v", results[name], err)
		}
	}

	t.Run("server-certificate", func(t *testing.T) {
		p := observe(t.Context(), clientOf(t, up.Endpoint), nil, nil)
		chain := p.certificate().PeerCertificates
		for name, tc := range map[string]struct {
			cfg  *rest.Config
			host string
			want verdict
			text string
		}{
			"another host":      {up.Config(t), "elsewhere.example", failed, "not elsewhere.example"},
			"another authority": {&rest.Config{Host: up.Endpoint}, "127.0.0.1", failed, "unknown authority"},
			"no verification":   {&rest.Config{Host: up.Endpoint, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, "127.0.0.1", warns, "insecure-skip-tls-verify"},
		} {
			if f := judgeServer(tc.cfg, tc.host, chain); f.verdict != tc.want || !strings.Contains(f.text, tc.text) {
				t.Errorf("%s: %v", name, f)
			}
		}
	})

	user := filepath.Join(t.TempDir(), "reader")
	e2e.WriteFile(t, user, strings.NewReplacer("client-certificate-data", "unused", "client-key-data", "unused2").Replace(read(t, up.Kubeconfig)))
	results, err = examine(t, "--kubeconfig="+user)
	if r := results["namespaces"]; err != nil && strings.Contains(err.Error(), "read kubeconfig") || r.Verdict != skipped || !strings.Contains(r.Found, "forbidden") {
		t.Errorf("a user without rights: %+v, %v", r, err)
	}

	for _, s := range badObjects {
		file := filepath.Join(t.TempDir(), "object.yaml")
		e2e.WriteFile(t, file, s.object)
		up.MustKubectl(t, "apply", "-f", file)
		e2e.Eventually(t, s.check+" fails", func() error {
			results, err := examine(t, at)
			if r := results[s.check]; r.Verdict != s.want || !strings.Contains(r.Found, s.text) || r.Advice == "" {
				return fmt.Errorf("%+v (%v)", r, err)
			}
			if (s.want == failed) != (err != nil) && s.want == failed {
				return fmt.Errorf("the command ends with %v", err)
			}
			return nil
		})
	}

	if err := up.Stop(); err != nil {
		t.Fatal(err)
	}
	results, err = examine(t, at)
	if err == nil || results["port"].Verdict != failed || results["kubeconfig"].Verdict != failed || results["leaders"].Found != "the gateway does not answer" || results["key-pairs"].Verdict != good {
		t.Errorf("after the end: %v\n%v", err, results)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Bad input is one line.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-o xml":              "-o xml: must be wide, json or yaml",
		"--data-dir=/nowhere": "--data-dir: ",
		"x":                   "takes no arguments",
	} {
		cmd := New()
		cmd.SetArgs(strings.Fields(args))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", args, err)
		}
	}
}
