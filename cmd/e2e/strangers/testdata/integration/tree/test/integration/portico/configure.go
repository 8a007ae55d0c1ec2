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
	"k8s.io/kubernetes/pkg/serviceaccount"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// built stands for the authenticator and the authorizer that the options make.
type built struct {
	authorizer.Authorizer
	asked bool
}

func newBuilt() *built {
	b := &built{}
	b.Authorizer = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		b.asked = true
		return authorizer.DecisionNoOpinion, "", nil
	})
	return b
}

// AuthenticateRequest implements authenticator.Request.
func (b *built) AuthenticateRequest(*http.Request) (*authenticator.Response, bool, error) {
	b.asked = true
	return nil, false, nil
}

// Configure changes options to what modify, of a test, does to the configuration that is made of them. It returns the
// token of the client, if that is not the one of the server. ABAC is that of kube-apiserver, as a webhook. A test that changes what is only in the process of
// kube-apiserver is skipped.
func Configure(t ktesting.TB, opts *options.ServerRunOptions, modify func(*controlplane.Config)) (token *string) {
	t.Helper()
	if file := opts.Authorization.PolicyFile; file != "" && slices.Contains(opts.Authorization.Modes, "ABAC") {
		policy, err := abac.NewFromFile(file)
		if err != nil {
			t.Fatalf("read the policy of ABAC: %v", err)
		}
		opts.Authorization.PolicyFile, opts.Authorization.Modes[slices.Index(opts.Authorization.Modes, "ABAC")] = "", "Webhook"
		askRights(t, opts, policy)
	}
	if modify == nil {
		return nil
	}
	config := &controlplane.Config{}
	generic := genericapiserver.NewConfig(legacyscheme.Codecs)
	config.ControlPlane.Generic = generic
	users, rights := newBuilt(), newBuilt()
	generic.Authentication.Authenticator, generic.Authorization.Authorizer = users, rights
	generic.LoopbackClientConfig = &rest.Config{BearerToken: "own"}
	generic.EnableProfiling = true
	accounts := &config.ControlPlane.Extra
	accounts.ServiceAccountIssuer = issuer(t, opts)
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

	after := *generic
	after.Authentication, after.Authorization = before.Authentication, before.Authorization
	for i := range reflect.TypeOf(after).NumField() {
		if name := reflect.TypeOf(after).Field(i).Name; same(reflect.ValueOf(before).Field(i), reflect.ValueOf(after).Field(i)) {
			continue
		} else if name != "EnableProfiling" {
			t.Skipf("in-process %s", name)
		}
	}
	if accounts.ServiceAccountMaxExpiration != 0 {
		opts.Authentication.ServiceAccounts.MaxExpiration = accounts.ServiceAccountMaxExpiration
	}
	if generic.Authentication.Authenticator != authenticator.Request(users) {
		askUsers(t, opts, generic.Authentication.Authenticator)
	}
	if changed := generic.Authorization.Authorizer; changed != authorizer.Authorizer(rights) {
		// The webhook is asked after the other authorizers if the one of the test asks them.
		changed.Authorize(context.Background(), &authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "probe"}, Verb: "get", Path: "/probe"})
		if !rights.asked {
			opts.Authorization.Modes = nil
		}
		opts.Authorization.Modes = append(slices.Clone(opts.Authorization.Modes), "Webhook")
		askRights(t, opts, changed)
	}
	if generic.LoopbackClientConfig.BearerToken == "" {
		// The authenticator of the test is asked about any token.
		anyone := uuid.NewString()
		return &anyone
	}
	return nil
}

// same reports whether a field was not changed. Functions and interfaces are compared by what they point to.
func same(before, after reflect.Value) bool {
	switch before.Kind() {
	case reflect.Func, reflect.Slice, reflect.Map:
		return before.Pointer() == after.Pointer()
	case reflect.Interface:
		if before.IsNil() || after.IsNil() {
			return before.IsNil() == after.IsNil()
		}
		return before.Elem().Type() == after.Elem().Type()
	}
	return !before.Comparable() || before.Equal(after)
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
