package clients

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"portico/cmd/e2e"
)

// Where everything is allowed, by a mode or by a file, everything is allowed to users: requests without a credential are none.
func TestAlwaysAllow(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "authorization.yaml")
	e2e.WriteFile(t, file, "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: [{type: AlwaysAllow, name: alwaysallow}]\n")
	for _, flag := range []string{"--authorization-mode=AlwaysAllow", "--authorization-config=" + file} {
		up := e2e.Install(t, t.TempDir(), flag)
		config := up.Config(t)
		config.Impersonate.UserName = "jane"
		if _, err := kubernetes.NewForConfigOrDie(config).CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("%s: a user: %v", flag, err)
		}
		if _, err := with(t, up, "").CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: without a credential: %v", flag, err)
		}
	}
}

// A webhook of an AuthorizationConfiguration decides about requests and reviews before RBAC, with the
// selectors of the request. While it fails its policy decides. The file is read again when it changes, and
// a wrong one changes nothing.
func TestAuthorizationConfiguration(t *testing.T) {
	t.Parallel()
	e2e.NeedsInstallation(t)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review authorizationv1.SubjectAccessReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		switch review.Spec.User {
		case "silent", "open:silent":
			<-r.Context().Done()
			return
		case "garbage", "open:garbage":
			_, _ = w.Write([]byte("{]"))
			return
		}
		at := review.Spec.ResourceAttributes
		review.Status.Denied = review.Spec.User == "denied"
		review.Status.Allowed = review.Spec.User == "selecting" && at != nil && at.FieldSelector != nil
		_ = json.NewEncoder(w).Encode(review)
	}))
	defer hook.Close()
	dir := t.TempDir()
	kubeconfig, file := filepath.Join(dir, "webhook.kubeconfig"), filepath.Join(dir, "authorization.yaml")
	e2e.WriteFile(t, kubeconfig, fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"w","cluster":{"server":%q}}],
"contexts":[{"name":"w","context":{"cluster":"w","user":"w"}}],"users":[{"name":"w"}],"current-context":"w"}`, hook.URL))
	const head, rbac = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n", "- {type: RBAC, name: rbac}\n"
	webhook := func(name, policy, condition string) string {
		return "- {type: Webhook, name: " + name + ", webhook: {timeout: 2s, authorizedTTL: 1s, unauthorizedTTL: 1s, subjectAccessReviewVersion: v1, failurePolicy: " + policy +
			", matchConditionSubjectAccessReviewVersion: v1, matchConditions: [{expression: \"!request.user.startsWith('system:')\"}, {expression: \"" + condition + "\"}," +
			" {expression: \"!request.user.endsWith('wrong') || request.resourceAttributes.verb != ''\"}], connectionInfo: {type: KubeConfigFile, kubeConfigFile: " + kubeconfig + "}}}\n"
	}
	e2e.WriteFile(t, file, head+webhook("hook", "Deny", "!request.user.startsWith('open:')")+webhook("open", "NoOpinion", "request.user.startsWith('open:')")+rbac)
	up := e2e.Install(t, t.TempDir(), "--authorization-config="+file)
	as := func(user string) kubernetes.Interface {
		config := up.Config(t)
		config.Impersonate.UserName, config.Impersonate.Groups = user, []string{"system:authenticated"}
		return kubernetes.NewForConfigOrDie(config)
	}
	version := func(user string) error { _, err := as(user).Discovery().ServerVersion(); return err }
	if err := version("other"); err != nil {
		t.Errorf("RBAC after a webhook without an opinion: %v", err)
	}
	if err := version("denied"); !apierrors.IsForbidden(err) {
		t.Errorf("denied: %v", err)
	}
	_, err := as("selecting").CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=n"})
	_, without := as("selecting").CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil || !apierrors.IsForbidden(without) {
		t.Errorf("with a selector %v, without %v", err, without)
	}
	rules, err := as("other").AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"},
	}, metav1.CreateOptions{})
	if err != nil || !rules.Status.Incomplete || len(rules.Status.NonResourceRules) == 0 {
		t.Errorf("rules: %+v %v", rules, err)
	}
	review, err := up.Client(t).AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: "denied", NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/version", Verb: "get"}},
	}, metav1.CreateOptions{})
	if err != nil || !review.Status.Denied {
		t.Errorf("review: %+v %v", review, err)
	}
	fails := func(how string) {
		t.Helper()
		if err := version(how); !apierrors.IsInternalError(err) {
			t.Errorf("%s, Deny: %v", how, err)
		}
		if err := version("open:" + how); err != nil {
			t.Errorf("%s, NoOpinion: %v", how, err)
		}
	}
	fails("silent")
	fails("garbage")
	fails("wrong") // a match condition fails
	hook.Close()
	fails("dead")
	e2e.WriteFile(t, file, head+rbac)
	e2e.Eventually(t, "the webhook is no longer asked", func() error { return version("denied") })
	e2e.WriteFile(t, file, "nonsense")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	hostHash := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(host)))
	e2e.Eventually(t, "the wrong file is counted", func() error {
		text, err := up.Client(t).Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		for _, want := range []string{
			`apiserver_authorization_config_controller_automatic_reloads_total{apiserver_id_hash="` + hostHash + `",status="failure"} `,
			`apiserver_authorization_config_controller_automatic_reloads_total{apiserver_id_hash="` + hostHash + `",status="success"} 1`,
			`apiserver_authorization_decisions_total{decision="denied",name="hook",type="Webhook"}`, `apiserver_authorization_webhook_evaluations_total{name="hook",result="success"}`,
			`apiserver_authorization_webhook_evaluations_total{name="hook",result="timeout"} 1`, `apiserver_authorization_webhook_evaluations_total{name="open",result="timeout"} 1`,
			`apiserver_authorization_webhook_evaluations_total{name="hook",result="error"} `, `apiserver_authorization_webhook_evaluations_total{name="open",result="error"} 2`,
			`apiserver_authorization_webhook_evaluations_fail_open_total{name="open",result="timeout"} 1`, `apiserver_authorization_webhook_evaluations_fail_open_total{name="open",result="error"} 2`,
			`apiserver_authorization_match_condition_evaluation_errors_total{name="hook",type="Webhook"} 1`, `apiserver_authorization_match_condition_evaluation_errors_total{name="open",type="Webhook"} 1`,
			`apiserver_authorization_match_condition_exclusions_total{name="hook",type="Webhook"} `, `apiserver_authorization_match_condition_exclusions_total{name="open",type="Webhook"} `,
			`apiserver_authorization_match_condition_evaluation_seconds_count{name="hook",type="Webhook"} `,
		} {
			if err == nil && !strings.Contains(string(text), want) {
				err = fmt.Errorf("no metric %s", want)
			}
		}
		return err
	})
	if err := version("denied"); err != nil {
		t.Errorf("after the wrong file: %v", err)
	}
}
