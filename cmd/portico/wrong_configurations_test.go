package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
	"portico/internal/testing/await"
)

// A configuration of authentication or authorization that kube-apiserver refuses is refused before anything is started,
// by one line that names the file and the field.
func TestWrongConfigurations(t *testing.T) {
	t.Parallel()
	program := e2e.Program(t, testtools.Portico)
	const (
		issuer, username = "issuer: {url: https://a.example, audiences: [x]}", "claimMappings: {username: {claim: sub, prefix: ''}}"
		webhook          = "type: Webhook, name: w, webhook: {timeout: 3s, authorizedTTL: 1s, unauthorizedTTL: 1s, subjectAccessReviewVersion: v1, failurePolicy: Deny, "
		connected        = "connectionInfo: {type: KubeConfigFile, kubeConfigFile: /none}"
	)
	for _, tc := range []struct{ command, kind, entry, want string }{
		{"up", "Authentication", "{issuer: {url: https://a.example}, " + username + "}", "jwt[0].issuer.audiences: Required value"},
		{"up", "Authentication", "{" + issuer + ", " + username + "}, {" + issuer + ", " + username + "}", "jwt[1].issuer.url: Duplicate value"},
		{"up", "Authentication", "{issuer: {url: 'https://kubernetes.default.svc.cluster.local', audiences: [x]}, " + username + "}", "jwt[0].issuer.url: Invalid value"},
		{"up", "Authentication", "{" + issuer + ", claimMapping: {}}", `unknown field "jwt[0].claimMapping"`},
		{"up", "Authentication", "{" + issuer + ", claimMappings: {username: {expression: 'claims.sub + nothing'}}}", "jwt[0].claimMappings.username.expression: Invalid value"},
		{"gateway", "Authentication", "{" + issuer + ", " + username + ", userValidationRules: [{expression: 'user.username =='}, {expression: 'a.b'}]}", "jwt[0].userValidationRules[1].expression: Invalid value"},
		{"up", "Authorization", "{type: RBAC, name: rbac}, {type: RBAC, name: again}", "authorizers[1].type: Duplicate value"},
		{"up", "Authorization", "{" + webhook + connected + "}}", "authorizers[0].connectionInfo.kubeConfigFile: Invalid value"},
		{"up", "Authorization", "{" + webhook + "matchConditionSubjectAccessReviewVersion: v1, matchConditions: [{expression: 'request.nothing'}], " + connected + "}}", "authorizers[0].matchConditions[0].expression: Invalid value"},
		{"gateway", "Authorization", "{type: Webhook, name: w, webhook: {timeout: 1h}}", "authorizers[0].timeout: Invalid value"},
		{"gateway", "Authorization", "{type: RBAC, name: rbac, weight: 1}", `unknown field "authorizers[0].weight"`},
	} {
		t.Run(tc.want, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "configuration.yaml")
			list := map[string]string{"Authentication": "jwt", "Authorization": "authorizers"}[tc.kind]
			e2e.WriteFile(t, file, "apiVersion: apiserver.config.k8s.io/v1\nkind: "+tc.kind+"Configuration\n"+list+": ["+tc.entry+"]\n")
			args := []string{"up", "--listen=127.0.0.1:0", "--data-dir=" + filepath.Join(dir, "data")}
			if tc.command == "gateway" {
				args = []string{"gateway", "--listen=unix://" + dir + "/g.sock", "--etcd-servers=unix://" + dir + "/e.sock"}
			}
			ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
			defer cancel()
			cmd := exec.CommandContext(ctx, program, append(args, "--"+strings.ToLower(tc.kind)+"-config="+file)...)
			var stdout, stderr strings.Builder
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			_ = cmd.Run() // its error is the exit code
			said := stderr.String()
			if cmd.ProcessState.ExitCode() != 1 || strings.Count(said, "\n") != 1 || stdout.Len() > 0 || !strings.Contains(said, file) || !strings.Contains(said, tc.want) {
				t.Errorf("exit code %d, %q, %q; want 1 and one line with %s and %q", cmd.ProcessState.ExitCode(), &stdout, said, file, tc.want)
			}
		})
	}
}
