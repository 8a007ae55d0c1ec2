package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"portico/cmd/e2e"
	"portico/internal/testing/issuertest"
)

// tokenFileEnv names a file with a token. It makes the test binary the credential plugin of kubectl.
const tokenFileEnv = "E2E_TOKEN_FILE"

// beCredentialPlugin prints the token of the file as an ExecCredential.
func beCredentialPlugin() {
	file := os.Getenv(tokenFileEnv)
	if file == "" {
		return
	}
	token, err := os.ReadFile(file)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	credential := clientauthenticationv1.ExecCredential{Status: &clientauthenticationv1.ExecCredentialStatus{Token: string(token)}}
	credential.APIVersion, credential.Kind = clientauthenticationv1.SchemeGroupVersion.String(), "ExecCredential"
	_ = json.NewEncoder(os.Stdout).Encode(credential) // kubectl is gone
	os.Exit(0)
}

// documentedIssuers returns the example of docs/operations.md for an issuer instead of its own, with a second one.
func documentedIssuers(t *testing.T, first, second *issuertest.Issuer) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(e2e.Repository(), "docs/operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "    # authentication.yaml\n")
	example, _, _ = strings.Cut(example, "\n\n")
	example = regexp.MustCompile("(?m)^    ").ReplaceAllString(example, "")
	of := func(i *issuertest.Issuer) string {
		return fmt.Sprintf("url: %s, certificateAuthority: %q", i.URL, i.CA)
	}
	text := strings.Replace(example, "url: https://login.example.com", of(first), 1)
	text = strings.Replace(text, "\nanonymous:", fmt.Sprintf("\n- issuer: {%s, audiences: [portico]}\n  claimMappings: {username: {claim: sub, prefix: \"second:\"}}\nanonymous:", of(second)), 1)
	if !strings.Contains(text, first.URL) || !strings.Contains(text, second.URL) {
		t.Fatalf("the example of the page is %s", example)
	}
	return text
}

// execUser is a user of kubectl with the token of a file, by a credential plugin.
type execUser struct{ kubeconfig, file string }

func newExecUser(t *testing.T, up *e2e.Installation) execUser {
	t.Helper()
	dir := t.TempDir()
	u := execUser{filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "token")}
	config, err := clientcmd.LoadFromFile(up.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			APIVersion: clientauthenticationv1.SchemeGroupVersion.String(), InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			Command: os.Args[0], Env: []clientcmdapi.ExecEnvVar{{Name: tokenFileEnv, Value: u.file}},
		}}
	}
	if err := clientcmd.WriteToFile(*config, u.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return u
}

// kubectl runs the real kubectl with a token and returns its output.
func (u execUser) kubectl(t *testing.T, up *e2e.Installation, token string, args ...string) (string, error) {
	t.Helper()
	e2e.WriteFile(t, u.file, token)
	out, err := up.KubectlCommand(t.Context(), t, append([]string{"--kubeconfig=" + u.kubeconfig}, args...)...).CombinedOutput()
	return string(out), err
}

// with returns a client with a bearer token; "": without a credential.
func with(t *testing.T, up *e2e.Installation, token string) kubernetes.Interface {
	t.Helper()
	config := rest.AnonymousClientConfig(up.Config(t))
	config.BearerToken, config.QPS, config.Burst = token, 1000, 1000
	return kubernetes.NewForConfigOrDie(config)
}

// whoAmI returns the user of a client.
func whoAmI(ctx context.Context, client kubernetes.Interface) (authenticationv1.UserInfo, error) {
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return review.Status.UserInfo, nil
}

// is returns an error unless a client is of the user.
func is(ctx context.Context, client kubernetes.Interface, name string) error {
	user, err := whoAmI(ctx, client)
	if err == nil && user.Username != name {
		err = fmt.Errorf("user %q, want %q", user.Username, name)
	}
	return err
}

// The example of the page, with two issuers of which one is down: kubectl with a credential plugin is the
// user of its token, and may what the groups of the token may; reviews say the same; what the rules refuse,
// and requests without a credential, are refused. A changed file takes effect while no request is refused.
func TestIssuers(t *testing.T) {
	t.Parallel()
	e2e.NeedsInstallation(t)
	issuers := make([]*issuertest.Issuer, 2)
	for n := range issuers {
		i, err := issuertest.Start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(i.Close)
		issuers[n] = i
	}
	login, second := issuers[0], issuers[1]
	second.Away.Store(true)
	file := filepath.Join(t.TempDir(), "authentication.yaml")
	text := documentedIssuers(t, login, second)
	e2e.WriteFile(t, file, text)
	up := e2e.Install(t, t.TempDir(), "--authentication-config="+file)
	token := login.Token(issuertest.Claims{"roles": []string{"developers"}})
	jane := with(t, up, token)
	e2e.Eventually(t, "the issuer's keys are read", func() error { return is(t.Context(), jane, "login:jane") })

	usersOfIssuers(t, up, login, second, token)
	kubectlOfIssuer(t, up, login, token)
	issuersAreReadAgain(t, up, jane, second, file, text)
}

// usersOfIssuers checks who the tokens of two issuers, of which the second is down, are.
func usersOfIssuers(t *testing.T, up *e2e.Installation, login, second *issuertest.Issuer, token string) {
	t.Helper()
	anonymous := with(t, up, "").Discovery().RESTClient()
	for path, want := range map[string]int{"/livez": http.StatusOK, "/version": http.StatusUnauthorized} {
		var code int
		if anonymous.Get().AbsPath(path).Do(t.Context()).StatusCode(&code); code != want {
			t.Errorf("%s without a credential: %d, want %d", path, code, want)
		}
	}
	for _, tc := range []struct{ name, token, want string }{
		{"a token", token, "login:jane"},
		{"a token of the issuer that is down", second.Token(nil), ""},
		{"a token with a group of the system", login.Token(issuertest.Claims{"roles": []string{"system:masters"}}), ""},
		{"a token by the key of the other issuer", second.Sign(login.Header(), login.Payload(issuertest.Claims{"roles": []string{}})), ""},
	} {
		tokenIsOf(t, up, tc.name, tc.token, tc.want)
	}
	metrics, err := up.Client(t).Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	for i, ready := range map[*issuertest.Issuer]string{login: "1", second: "0"} {
		if want := fmt.Sprintf("portico_authentication_issuer_ready{issuer=%q} %s", i.URL, ready); err != nil || !strings.Contains(string(metrics), want) {
			t.Errorf("no metric %s: %v", want, err)
		}
	}
}

// kubectlOfIssuer checks that kubectl with a credential plugin has the rights of the token's groups.
func kubectlOfIssuer(t *testing.T, up *e2e.Installation, login *issuertest.Issuer, token string) {
	t.Helper()
	_, err := up.Client(t).RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "developers"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "developers"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	u := newExecUser(t, up)
	e2e.Eventually(t, "the group's rights apply", func() error {
		_, err := with(t, up, token).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
		return err
	})
	for _, tc := range []struct{ token, command, want string }{
		{token, "auth whoami -o jsonpath={.status.userInfo.username},{.status.userInfo.groups}", `login:jane,["developers","system:authenticated"]`},
		{token, "get configmaps -n default -o name", "configmap/kube-root-ca.crt"},
		{token, "get secrets -n default", `User "login:jane" cannot list resource "secrets"`},
		{login.Token(issuertest.Claims{"sub": "john", "roles": []string{}}), "get configmaps -n default", `User "login:john" cannot list resource "configmaps"`},
		{token + "x", "get configmaps -n default", "You must be logged in to the server"},
	} {
		out, err := u.kubectl(t, up, tc.token, strings.Fields(tc.command)...)
		if !strings.Contains(out, tc.want) {
			t.Errorf("kubectl %s: %v, %s; want %s", tc.command, err, out, tc.want)
		}
	}
}

// issuersAreReadAgain changes the file while a user sends requests.
func issuersAreReadAgain(t *testing.T, up *e2e.Installation, jane kubernetes.Interface, second *issuertest.Issuer, file, text string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var users sync.WaitGroup
	var asked, refused atomic.Int64
	for range 2 {
		users.Go(func() {
			for ctx.Err() == nil {
				if _, err := whoAmI(ctx, jane); err != nil && ctx.Err() == nil {
					refused.Add(1)
				}
				asked.Add(1)
			}
		})
	}
	write := func(text string) {
		e2e.WriteFile(t, file+".next", text)
		if err := os.Rename(file+".next", file); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(up.Child(t, "gateway"), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	second.Away.Store(false)
	write(strings.Replace(text, `prefix: "login:"`, `prefix: "staff:"`, 1))
	other := with(t, up, second.Token(nil))
	e2e.Eventually(t, "the changed prefix applies", func() error { return is(t.Context(), jane, "staff:jane") })
	e2e.Eventually(t, "the second issuer's keys are read", func() error { return is(t.Context(), other, "second:jane") })
	before := asked.Load()
	write("nonsense")
	e2e.Eventually(t, "the wrong file is counted", func() error {
		metrics, err := up.Client(t).Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		if err == nil && !regexp.MustCompile(`apiserver_authentication_config_controller_automatic_reloads_total\{[^}]*status="failure"\} 1\b`).Match(metrics) {
			err = fmt.Errorf("no failure among the metrics")
		}
		if err == nil && asked.Load() == before {
			err = fmt.Errorf("no request since the wrong file")
		}
		return err
	})
	if err := is(t.Context(), jane, "staff:jane"); err != nil {
		t.Errorf("after the wrong file: %v", err)
	}
	cancel()
	users.Wait()
	if refused.Load() > 0 {
		t.Errorf("%d of %d requests were refused", refused.Load(), asked.Load())
	}
}
