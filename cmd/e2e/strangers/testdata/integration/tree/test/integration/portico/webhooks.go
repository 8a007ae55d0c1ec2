package portico

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	authorizationapi "k8s.io/kubernetes/pkg/apis/authorization"
	conversion "k8s.io/kubernetes/pkg/apis/authorization/v1"
	"k8s.io/kubernetes/pkg/registry/authorization/util"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// serveTokenReviews serves the authenticator of a test as the webhook of the server.
func serveTokenReviews(t ktesting.TB, opts *options.ServerRunOptions, authn authenticator.Request) {
	hook := opts.Authentication.WebHook
	hook.Version, hook.CacheTTL = "v1", 0
	hook.ConfigFile = serve(t, "authentication", func(review *authenticationv1.TokenReview) {
		r, err := http.NewRequest(http.MethodGet, "https://127.0.0.1/", nil)
		if err != nil {
			review.Status.Error = err.Error()
			return
		}
		r.Header.Set("Authorization", "Bearer "+review.Spec.Token)
		answer, ok, err := authn.AuthenticateRequest(r)
		if err != nil {
			review.Status.Error = err.Error()
		}
		if review.Status.Authenticated = ok && err == nil; !review.Status.Authenticated {
			return
		}
		u := authenticationv1.UserInfo{Username: answer.User.GetName(), UID: answer.User.GetUID(), Groups: answer.User.GetGroups()}
		for key, values := range answer.User.GetExtra() {
			if u.Extra == nil {
				u.Extra = map[string]authenticationv1.ExtraValue{}
			}
			u.Extra[key] = values
		}
		review.Status.User, review.Status.Audiences = u, review.Spec.Audiences
	})
}

// serveSubjectAccessReviews serves the authorizer of a test as the webhook of the server.
func serveSubjectAccessReviews(t ktesting.TB, opts *options.ServerRunOptions, authz authorizer.Authorizer) {
	to := opts.Authorization
	to.WebhookVersion, to.WebhookCacheAuthorizedTTL, to.WebhookCacheUnauthorizedTTL = "v1", 0, 0
	to.WebhookConfigFile = serve(t, "authorization", func(review *authorizationv1.SubjectAccessReview) {
		var spec authorizationapi.SubjectAccessReviewSpec
		if err := conversion.Convert_v1_SubjectAccessReviewSpec_To_authorization_SubjectAccessReviewSpec(&review.Spec, &spec, nil); err != nil {
			review.Status.EvaluationError = err.Error()
			return
		}
		attributes := util.AuthorizationAttributesFrom(spec)
		decision, reason, err := authz.Authorize(context.Background(), &attributes)
		review.Status.Allowed, review.Status.Denied, review.Status.Reason = decision == authorizer.DecisionAllow, decision == authorizer.DecisionDeny, reason
		if err != nil {
			review.Status.EvaluationError = err.Error()
		}
	})
}

// serve serves a webhook until the end of the test, and returns the path of its kubeconfig. answer completes a review.
func serve[T any](t ktesting.TB, name string, answer func(*T)) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := new(T)
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer(review)
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Logf("webhook: %v", err)
		}
	}))
	t.Cleanup(server.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server.URL}
	config.AuthInfos[name] = clientcmdapi.NewAuthInfo()
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	path := filepath.Join(t.TempDir(), name+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatalf("write the kubeconfig of a webhook: %v", err)
	}
	return path
}
