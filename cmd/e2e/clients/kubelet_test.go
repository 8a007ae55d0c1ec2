package clients

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/remotecommand"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
	"portico/internal/testing/await"
	"portico/internal/testing/kubelettest"
)

// runPod creates a running pod on a node.
func runPod(t *testing.T, client kubernetes.Interface, ns, node string) {
	t.Helper()
	var pod *corev1.Pod
	e2e.Eventually(t, "the pod is created", func() (err error) {
		pod, err = client.CoreV1().Pods(ns).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{ServiceAccountName: "default", Containers: []corev1.Container{{Name: "c", Image: "i", Stdin: true}}},
		}, metav1.CreateOptions{})
		return err
	})
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: pod.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	if err := client.CoreV1().Pods(ns).Bind(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod, err := client.CoreV1().Pods(ns).Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase, pod.Status.PodIPs, pod.Status.PodIP = corev1.PodRunning, []corev1.PodIP{{IP: "127.0.0.1"}}, "127.0.0.1"
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	if _, err := client.CoreV1().Pods(ns).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// kubectl reaches the containers of a pod through the kubelet of its node, over WebSockets
// and over SPDY.
func TestKubectlStreams(t *testing.T) {
	t.Parallel()
	kubelet := kubelettest.New(t)
	up := e2e.Install(t, t.TempDir(), "--kubelet-certificate-authority="+kubelet.CAFile,
		"--kubelet-client-certificate="+kubelet.CertFile, "--kubelet-client-key="+kubelet.KeyFile, "--kubelet-allow-loopback")
	client := up.Client(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(kubelet.Port)
	if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ns := e2e.NewNamespace(t, client)
	runPod(t, client, ns, "n")
	for _, protocol := range []string{"true", "false"} {
		s := &streams{t: t, up: up, env: []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=" + protocol, "KUBECTL_PORT_FORWARD_WEBSOCKETS=" + protocol}, ns: ns}
		s.exec()
		s.attach()
		s.copy()
		s.forward()
	}
	s := &streams{t: t, up: up, ns: ns}
	s.logs(kubelet)
	s.proxy()
	s.refusals(client)
	valid := s.token(client)
	if !valid() {
		t.Error("the token of the pod is not valid")
	}
	s.drain(client)
	e2e.Eventually(t, "the token of the pod ends with it", func() error {
		if valid() {
			return errNotYet
		}
		return nil
	})
}

// token makes a token for the pod, and returns what tells whether it is valid.
func (s *streams) token(client kubernetes.Interface) (valid func() bool) {
	t := s.t
	token, err := client.CoreV1().ServiceAccounts(s.ns).CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "p"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return func() bool {
		review, err := client.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: token.Status.Token},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		extra := review.Status.User.Extra
		if review.Status.Authenticated && (extra["authentication.kubernetes.io/pod-name"][0] != "p" || extra["authentication.kubernetes.io/node-name"][0] != "n") {
			t.Errorf("%v", extra)
		}
		return review.Status.Authenticated
	}
}

// streams runs kubectl with an environment.
type streams struct {
	t   *testing.T
	up  *e2e.Installation
	env []string
	ns  string
}

// run runs kubectl in the namespace and returns its standard output.
func (s *streams) run(in string, args ...string) (string, error) {
	s.t.Helper()
	e2e.Program(s.t, testtools.Kubectl) // Patience does not include building it
	ctx, cancel := context.WithTimeout(s.t.Context(), await.Patience())
	defer cancel()
	cmd := s.up.KubectlCommand(ctx, s.t, append([]string{"-n", s.ns}, args...)...)
	cmd.Env = append(cmd.Env, s.env...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, &errOut)
	}
	return out.String(), nil
}

// start starts kubectl and returns its standard output and what stops it.
func (s *streams) start(args ...string) (*bufio.Reader, func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	cmd := s.up.KubectlCommand(ctx, s.t, append([]string{"-n", s.ns}, args...)...)
	cmd.Env = append(cmd.Env, s.env...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		s.t.Fatal(err)
	}
	return bufio.NewReader(out), func() {
		cancel()
		_ = cmd.Wait() // its error is that it was killed
	}
}

func (s *streams) exec() {
	text := strings.Repeat("x\n", 5000)
	if out, err := s.run(text, "exec", "-i", "p", "--", "cat"); err != nil || out != text {
		s.t.Errorf("%v: %d bytes, %v", s.env, len(out), err)
	}
	if out, err := s.run("", "exec", "p", "--", "exit", "3"); err == nil || !strings.Contains(err.Error(), "exit status 3") || out != "c of "+s.ns+"/p" {
		s.t.Errorf("%v: %q %v", s.env, out, err)
	}
}

func (s *streams) attach() {
	if out, err := s.run("a\nend\n", "attach", "-i", "p"); err != nil || !strings.HasSuffix(out, "attached to c of "+s.ns+"/p\na\n") {
		s.t.Errorf("%v: %q %v", s.env, out, err)
	}
}

func (s *streams) copy() {
	dir := s.t.TempDir()
	e2e.WriteFile(s.t, filepath.Join(dir, "a"), "content")
	if _, err := s.run("", "cp", filepath.Join(dir, "a"), "p:"+filepath.Join(dir, "b")); err != nil {
		s.t.Errorf("%v: %v", s.env, err)
	}
	if _, err := s.run("", "cp", "p:"+filepath.Join(dir, "b"), filepath.Join(dir, "c")); err != nil {
		s.t.Errorf("%v: %v", s.env, err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "c")); string(data) != "content" {
		s.t.Errorf("%v: %q %v", s.env, data, err)
	}
}

func (s *streams) forward() {
	out, stop := s.start("port-forward", "p", ":8080")
	defer stop()
	line, err := out.ReadString('\n')
	port := regexp.MustCompile(`127\.0\.0\.1:(\d+)`).FindStringSubmatch(line)
	if port == nil {
		s.t.Fatalf("%v: %q %v", s.env, line, err)
	}
	if got := fetch(s.t, "http://127.0.0.1:"+port[1]+"/x"); got != "port 8080 of "+s.ns+"/p: /x" {
		s.t.Errorf("%v: %q", s.env, got)
	}
}

// fetch returns the body of a URL.
func fetch(t *testing.T, url string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func (s *streams) logs(kubelet *kubelettest.Kubelet) {
	if out, err := s.run("", "logs", "p", "--tail=2", "--timestamps"); err != nil || out != "log of "+s.ns+"/p/c tailLines=2&timestamps=true\n" {
		s.t.Errorf("%q %v", out, err)
	}
	out, stop := s.start("logs", "-f", "p")
	defer stop()
	for _, want := range []string{"log of " + s.ns + "/p/c follow=true\n", "one\n", "two\n"} {
		if strings.HasPrefix(want, "one") || strings.HasPrefix(want, "two") {
			select {
			case kubelet.More <- strings.TrimSpace(want):
			case <-time.After(await.Patience()):
				s.t.Fatal("the log is not followed")
			}
		}
		if line, err := out.ReadString('\n'); line != want {
			s.t.Fatalf("%q %v", line, err)
		}
	}
}

// proxy reaches a kubelet's log through kubectl proxy. The address of a proxy must not be a
// loopback address.
func (s *streams) proxy() {
	out, stop := s.start("proxy", "--port=0")
	defer stop()
	line, err := out.ReadString('\n')
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
	if address == "" {
		s.t.Fatalf("%q %v", line, err)
	}
	base := "http://" + address + "/api/v1/"
	if got, want := fetch(s.t, base+"namespaces/"+s.ns+"/pods/p/log"), "log of "+s.ns+"/p/c \n"; got != want {
		s.t.Errorf("%q", got)
	}
	for _, path := range []string{"namespaces/" + s.ns + "/pods/p:80/proxy/", "nodes/n/proxy/"} {
		if got := fetch(s.t, base+path); !strings.Contains(got, "address not allowed") {
			s.t.Errorf("%s: %s", path, got)
		}
	}
}

// refusals checks what users without the permission to create, and requests that lead
// nowhere, get.
func (s *streams) refusals(client kubernetes.Interface) {
	t := s.t
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods", "pods/exec", "pods/log"}},
	}}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: "User", Name: "reader"}}, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "reader"}}
	if _, err := client.RbacV1().Roles(s.ns).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.RbacV1().RoleBindings(s.ns).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cfg := s.up.Config(t)
	cfg.Impersonate.UserName = "reader"
	reader := kubernetes.NewForConfigOrDie(cfg)
	e2e.Eventually(t, "the role is known", func() error {
		_, err := reader.CoreV1().Pods(s.ns).GetLogs("p", &corev1.PodLogOptions{}).DoRaw(t.Context())
		return err
	})
	url := cfg.Host + "/api/v1/namespaces/" + s.ns + "/pods/p/exec?command=cat&stdout=true"
	executor, err := remotecommand.NewWebSocketExecutor(cfg, http.MethodGet, url)
	if err != nil {
		t.Fatal(err)
	}
	err = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "cannot create resource") && !strings.Contains(err.Error(), "403") {
		t.Errorf("the get of exec: %v", err)
	}
	if _, err := s.run("", "exec", "p", "-c", "x", "--", "cat"); err == nil || !strings.Contains(err.Error(), "container x is not valid for pod p") {
		t.Error(err)
	}
	if _, err := client.CoreV1().Pods(s.ns).GetLogs("none", &corev1.PodLogOptions{}).DoRaw(t.Context()); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// drain evicts the pod, which stays until its kubelet, or the user, ends it.
func (s *streams) drain(client kubernetes.Interface) {
	t := s.t
	if out, err := s.run("", "drain", "n", "--force", "--timeout=1s"); err == nil {
		t.Errorf("drained: %s", out)
	}
	pod, err := client.CoreV1().Pods(s.ns).Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil || *pod.DeletionGracePeriodSeconds != 30 {
		t.Errorf("%+v", pod.ObjectMeta)
	}
	if _, err := s.run("", "delete", "pod", "p", "--force"); err != nil {
		t.Error(err)
	}
	if _, err := client.CoreV1().Pods(s.ns).Get(t.Context(), "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	if _, err := s.run("", "drain", "n", "--force"); err != nil {
		t.Error(err)
	}
}
