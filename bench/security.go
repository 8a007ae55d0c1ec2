package main

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// newSecurityCommand returns the command that measures what authentication, authorization and the other protections cost.
func newSecurityCommand() *cobra.Command {
	o := options{
		workers: 8, connections: 4, rounds: 5, objects: 1000, size: 3500, watchers: 300, window: 50, threads: 2,
		time: 3 * time.Second, rest: time.Second, limit: 20 * time.Minute,
	}
	cmd := &cobra.Command{
		Use:   "security --portico PROGRAM",
		Short: "Measure what authentication, authorization and the other protections cost together",
		Long: "Start two installations and measure requests in both, in turns. In the second one an issuer's token names the user, and\n" +
			"on are: structured authentication and authorization, Node and RBAC, priority and fairness, encryption of all resources,\n" +
			"an audit log, tracing, CORS and HSTS. In the first one the client has a certificate, and priority and fairness is off too.",
		Args: cobra.NoArgs, SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.portico == "" || o.rounds < 1 || o.objects < 1 || o.objects%o.rounds != 0 {
				return errors.New("security needs --portico, at least 1 of --rounds, and a multiple of it of --objects")
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), o.limit, fmt.Errorf("not finished within --limit=%v", o.limit))
			defer cancel()
			return measureSecurity(ctx, o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.portico, "portico", "", "`program` to start new installations with, in temporary folders")
	fs.IntVar(&o.objects, "objects", o.objects, "number of objects")
	fs.IntVar(&o.rounds, "rounds", o.rounds, "number of rounds of each measurement")
	fs.IntVar(&o.workers, "workers", o.workers, "number of requests in flight")
	fs.DurationVar(&o.limit, "limit", o.limit, "time limit of the run, without stopping the installations")
	return cmd
}

// securityBar is the share of the rate with everything off that is left with everything on.
const securityBar = 0.75

func measureSecurity(ctx context.Context, o options, out, errOut io.Writer) (err error) {
	issuer, err := newIssuer()
	if err != nil {
		return err
	}
	defer issuer.server.Close()
	without, with := o, o
	without.flags = func(string) ([]string, error) { return []string{"--enable-priority-and-fairness=false"}, nil }
	with.flags = issuer.flags
	var runners [2]*runner
	for i, options := range []*options{&without, &with} {
		var stop func() error
		if runners[i], stop, err = startRunner(ctx, options, fmt.Sprintf("security-%d", i), errOut); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
		if err = runners[i].setUp(ctx); err != nil {
			return err
		}
	}
	if err := issuer.logIn(ctx, runners[1]); err != nil {
		return err
	}
	report := newReport(&o)
	defer func() { report.print(out) }() // the results so far, even after a failure
	return compareWork(ctx, report, runners[:], []string{"everything off", "everything on"}, workloads, securityBar)
}

// issuer is an issuer of OpenID Connect tokens.
type issuer struct {
	key    *rsa.PrivateKey
	server *httptest.Server
}

func newIssuer() (*issuer, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	i := &issuer{key: key}
	document := func(content func() any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(content()) // fails only if the client has gone
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/.well-known/openid-configuration", document(func() any {
		return map[string]string{"issuer": i.server.URL, "jwks_uri": i.server.URL + "/keys"}
	}))
	mux.Handle("/keys", document(func() any {
		return map[string]any{"keys": []map[string]string{{
			"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "bench",
			"n": encodeURL(key.N.Bytes()), "e": encodeURL(big.NewInt(int64(key.E)).Bytes()),
		}}}
	}))
	i.server = httptest.NewTLSServer(mux)
	return i, nil
}

func encodeURL(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

// token returns a token of user bench in group admins.
func (i *issuer) token() (string, error) {
	payload, err := json.Marshal(map[string]any{
		"iss": i.server.URL, "aud": "portico", "sub": "bench", "groups": []string{"admins"}, "exp": time.Now().Add(time.Hour).Unix(),
	})
	if err != nil {
		return "", err
	}
	signed := encodeURL([]byte(`{"alg":"RS256","typ":"JWT","kid":"bench"}`)) + "." + encodeURL(payload)
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:])
	return signed + "." + encodeURL(signature), err
}

// flags returns the flags that switch everything on, and writes their files to a folder. The authorization webhook is never asked: its
// match condition is evaluated for each request.
func (i *issuer) flags(dir string) ([]string, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.server.Certificate().Raw})
	file := func(name string) string { return filepath.Join(dir, name) }
	const config = "apiVersion: apiserver.config.k8s.io/v1\nkind: "
	for name, text := range map[string]string{
		"authentication.yaml": config + "AuthenticationConfiguration\njwt:\n" +
			fmt.Sprintf("- issuer: {url: %s, certificateAuthority: %q, audiences: [portico]}\n", i.server.URL, ca) +
			"  claimMappings: {username: {claim: sub, prefix: \"login:\"}, groups: {claim: groups, prefix: \"login:\"}}\n",
		"webhook.yaml": "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: \"" + i.server.URL + "\"}}]\nusers: [{name: a}]\n" +
			"contexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\n",
		"authorization.yaml": config + "AuthorizationConfiguration\nauthorizers:\n" +
			"- type: Webhook\n  name: remote\n  webhook:\n    timeout: 3s\n    failurePolicy: NoOpinion\n    subjectAccessReviewVersion: v1\n" +
			"    matchConditionSubjectAccessReviewVersion: v1\n    connectionInfo: {type: KubeConfigFile, kubeConfigFile: \"" + file("webhook.yaml") + "\"}\n" +
			"    matchConditions: [{expression: \"request.user == 'nobody'\"}]\n" +
			"- {type: Node, name: node}\n- {type: RBAC, name: rbac}\n",
		"encryption.yaml": config + "EncryptionConfiguration\nresources:\n- resources: [\"*.*\"]\n  providers:\n" +
			"  - secretbox: {keys: [{name: bench, secret: " + base64.StdEncoding.EncodeToString(key) + "}]}\n  - identity: {}\n",
		"tracing.yaml": config + "TracingConfiguration\nendpoint: 127.0.0.1:1\n",
	} {
		if err := os.WriteFile(file(name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	audit, err := auditFlags(dir)
	return append(audit,
		"--authentication-config="+file("authentication.yaml"), "--authorization-config="+file("authorization.yaml"),
		"--enable-admission-plugins=NodeRestriction", "--enable-bootstrap-token-auth", "--enable-priority-and-fairness",
		"--encryption-provider-config="+file("encryption.yaml"), "--tracing-config-file="+file("tracing.yaml"),
		`--cors-allowed-origins=^https://console\.example\.com$`, "--strict-transport-security-directives=max-age=31536000"), err
}

// logIn gives the user of the tokens all rights, and has the runner send a token instead of the administrator's certificate.
func (i *issuer) logIn(ctx context.Context, r *runner) error {
	const binding = `{"metadata":{"name":"bench"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},` +
		`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"login:admins"}]}`
	if _, err := r.target.discard(ctx, 0, request{method: "POST", path: "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", contentType: jsonType, body: []byte(binding)}); err != nil {
		return err
	}
	token, err := i.token()
	if err != nil {
		return err
	}
	config, err := clientcmd.LoadFromFile(r.o.kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	}
	o := *r.o
	o.kubeconfig = filepath.Join(r.installation.dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, o.kubeconfig); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	r.target.close()
	if r.target, err = openTarget(ctx, &o); err != nil {
		return err
	}
	return retryWhileStarting(ctx, pollGently, func() error {
		_, err := r.target.discard(ctx, 0, request{path: "/api/v1/namespaces"})
		return err
	})
}
