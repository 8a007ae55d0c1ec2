package portico

import (
	"context"
	"net/http"
	"reflect"
	"slices"

	"github.com/google/uuid"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/auth/authorizer/abac"
	"k8s.io/kubernetes/pkg/controlplane"
	"k8s.io/kubernetes/pkg/kubeapiserver"
	"k8s.io/kubernetes/pkg/serviceaccount"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// stub stands for the authenticator or the authorizer that the options make.
type stub struct {
	authorizer.Authorizer
	called bool
}

func newStub(decision authorizer.Decision) *stub {
	s := &stub{}
	s.Authorizer = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		s.called = true
		return decision, "", nil
	})
	return s
}

// AuthenticateRequest implements authenticator.Request.
func (s *stub) AuthenticateRequest(*http.Request) (*authenticator.Response, bool, error) {
	s.called = true
	return nil, false, nil
}

// Configure sets in opts what modify changes in the configuration. It returns the token for clients, or nil for the token of
// the server. kube-apiserver's ABAC authorizer is served as a webhook. A change that only the process of kube-apiserver can
// make skips the test.
func Configure(t ktesting.TB, opts *options.ServerRunOptions, modify func(*controlplane.Config)) (token *string) {
	t.Helper()
	if file := opts.Authorization.PolicyFile; file != "" && slices.Contains(opts.Authorization.Modes, "ABAC") {
		policy, err := abac.NewFromFile(file)
		if err != nil {
			t.Fatalf("read the policy of ABAC: %v", err)
		}
		opts.Authorization.PolicyFile, opts.Authorization.Modes[slices.Index(opts.Authorization.Modes, "ABAC")] = "", "Webhook"
		serveSubjectAccessReviews(t, opts, policy)
	}
	if modify == nil {
		return nil
	}
	config := &controlplane.Config{}
	generic := genericapiserver.NewConfig(legacyscheme.Codecs)
	config.ControlPlane.Generic = generic
	allowed, decision := slices.Contains(opts.Authorization.Modes, "AlwaysAllow"), authorizer.DecisionNoOpinion
	if allowed {
		decision = authorizer.DecisionAllow
	}
	authn, authz := newStub(decision), newStub(decision)
	generic.Authentication.Authenticator, generic.Authorization.Authorizer = authn, authz
	generic.LoopbackClientConfig = &rest.Config{BearerToken: "own"}
	generic.EnableProfiling = true
	extra := &config.ControlPlane.Extra
	extra.ServiceAccountIssuer = issuer(t, opts)
	// The authorizer of a test may read roles in etcd.
	factory, err := kubeapiserver.NewStorageFactoryConfig().Complete(opts.Etcd).New()
	if err != nil {
		t.Fatalf("make the storage: %v", err)
	}
	extra.StorageFactory = factory
	config.ControlPlane.ProxyTransport = &http.Transport{}
	before := *generic
	func() {
		defer func() {
			if missing := recover(); missing != nil {
				t.Skipf("in-process configuration: %v", missing)
			}
		}()
		modify(config)
	}()

	if name := changed(&before, generic); name != "" {
		t.Skipf("in-process %s", name)
	}
	if extra.ServiceAccountMaxExpiration != 0 {
		opts.Authentication.ServiceAccounts.MaxExpiration = extra.ServiceAccountMaxExpiration
	}
	if generic.Authentication.Authenticator != authenticator.Request(authn) {
		serveTokenReviews(t, opts, generic.Authentication.Authenticator)
	}
	if custom := generic.Authorization.Authorizer; custom != authorizer.Authorizer(authz) {
		// The webhook comes after the other authorizers if the authorizer of the test calls them and one of them may
		// have no opinion.
		custom.Authorize(context.Background(), &authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "probe"}, Verb: "get", Path: "/probe"})
		if !authz.called || allowed {
			opts.Authorization.Modes = nil
		}
		opts.Authorization.Modes = append(slices.Clone(opts.Authorization.Modes), "Webhook")
		serveSubjectAccessReviews(t, opts, custom)
	}
	if generic.LoopbackClientConfig.BearerToken == "" {
		// No token of the server: the authenticator of the test authenticates the client.
		unknown := uuid.NewString()
		return &unknown
	}
	return nil
}

// configurable are the fields of the configuration that a test may change.
var configurable = []string{"Authentication", "Authorization", "EnableProfiling"}

// changed returns the name of a field that is not configurable and was changed, or "". Functions, slices and maps are compared
// by pointer; other values that are not comparable count as unchanged.
func changed(before, after *genericapiserver.Config) string {
	old, now := reflect.ValueOf(before).Elem(), reflect.ValueOf(after).Elem()
	for i := range old.NumField() {
		same, name := false, old.Type().Field(i).Name
		switch b, a := old.Field(i), now.Field(i); b.Kind() {
		case reflect.Func, reflect.Slice, reflect.Map:
			same = b.Pointer() == a.Pointer()
		default:
			same = !b.Comparable() || b.Equal(a)
		}
		if !same && !slices.Contains(configurable, name) {
			return name
		}
	}
	return ""
}

// issuer returns a generator of tokens as the server signs them.
func issuer(t ktesting.TB, opts *options.ServerRunOptions) serviceaccount.TokenGenerator {
	key, err := keyutil.PrivateKeyFromFile(opts.ServiceAccountSigningKeyFile)
	if err != nil {
		t.Fatalf("read the key of tokens: %v", err)
	}
	generator, err := serviceaccount.JWTTokenGenerator(opts.Authentication.ServiceAccounts.Issuers[0], key)
	if err != nil {
		t.Fatalf("make a generator of tokens: %v", err)
	}
	return generator
}
