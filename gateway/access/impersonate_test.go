package access

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

// impersonate sends a request of user u with headers through the filter. It
// returns the user that the handler got (nil if it was not called) and the response.
func impersonate(t *testing.T, a *Access, headers http.Header) (*resource.User, *httptest.ResponseRecorder) {
	t.Helper()
	var as *resource.User
	next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		as = resource.ActionFrom(r.Context()).User
		for name := range r.Header {
			if strings.HasPrefix(name, "Impersonate") {
				t.Errorf("header %s is passed on", name)
			}
		}
		if r.Header.Get("Kept") != "yes" {
			t.Error("other headers are lost")
		}
	})
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	act := resource.ParseAction(r)
	act.User = &resource.User{Name: "u", Groups: []string{"mine"}, Extra: map[string][]string{"own": {"x"}}}
	r = r.WithContext(resource.WithAction(r.Context(), act))
	r.Header = headers.Clone()
	r.Header.Set("Kept", "yes")
	w := httptest.NewRecorder()
	a.Impersonation(next).ServeHTTP(w, r)
	if act.User.Name != "u" {
		t.Error("the Action of the request changed")
	}
	return as, w
}

// Impersonation requires rights to each part of the identity.
func TestImpersonation(t *testing.T) {
	a := decider(granting(
		named("impersonate", "-", "users", "jane system:anonymous"),
		named("impersonate", "-", "groups", "devs system:unauthenticated"),
		named("impersonate", "-", "serviceaccounts", "robot"),
		named("impersonate", "authentication.k8s.io", "uids", "42"),
		named("impersonate", "authentication.k8s.io", "userextras/scopes userextras/a/b", "view"),
	))
	for name, c := range map[string]struct {
		headers http.Header
		as      *resource.User
		status  int
		message string
	}{
		"no headers": {headers: http.Header{}, as: &resource.User{Name: "u", Groups: []string{"mine"}, Extra: map[string][]string{"own": {"x"}}}},
		"empty user": {headers: http.Header{"Impersonate-User": {""}}, as: &resource.User{Name: "u", Groups: []string{"mine"}, Extra: map[string][]string{"own": {"x"}}}},
		"user":       {headers: http.Header{"Impersonate-User": {"jane"}}, as: &resource.User{Name: "jane", Groups: []string{"system:authenticated"}}},
		"groups": {headers: http.Header{"Impersonate-User": {"jane"}, "Impersonate-Group": {"devs"}},
			as: &resource.User{Name: "jane", Groups: []string{"devs", "system:authenticated"}}},
		"uid and extra": {headers: http.Header{"Impersonate-User": {"jane"}, "Impersonate-Uid": {"42"}, "Impersonate-Extra-Scopes": {"view"}, "Impersonate-Extra-A%2fb": {"view"}},
			as: &resource.User{Name: "jane", UID: "42", Groups: []string{"system:authenticated"}, Extra: map[string][]string{"scopes": {"view"}, "a/b": {"view"}}}},
		"anonymous": {headers: http.Header{"Impersonate-User": {"system:anonymous"}}, as: &resource.User{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}},
		"unauthenticated": {headers: http.Header{"Impersonate-User": {"jane"}, "Impersonate-Group": {"system:unauthenticated"}},
			as: &resource.User{Name: "jane", Groups: []string{"system:unauthenticated"}}},
		"service account": {headers: http.Header{"Impersonate-User": {"system:serviceaccount:ns:robot"}},
			as: &resource.User{Name: "system:serviceaccount:ns:robot", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"}}},
		"service account with groups": {headers: http.Header{"Impersonate-User": {"system:serviceaccount:ns:robot"}, "Impersonate-Group": {"devs"}},
			as: &resource.User{Name: "system:serviceaccount:ns:robot", Groups: []string{"devs", "system:authenticated"}}},

		"other user": {headers: http.Header{"Impersonate-User": {"joe"}}, status: 403,
			message: `pods is forbidden: User "u" cannot impersonate-on:user-info:list resource "pods" in API group "" at the cluster scope`},
		"other account": {headers: http.Header{"Impersonate-User": {"system:serviceaccount:ns:joe"}}, status: 403,
			message: `pods is forbidden: User "u" cannot impersonate-on:serviceaccount:list resource "pods" in API group "" at the cluster scope`},
		"one other group": {headers: http.Header{"Impersonate-User": {"jane"}, "Impersonate-Group": {"devs", "system:masters"}}, status: 403,
			message: `groups "system:masters" is forbidden: User "u" cannot impersonate resource "groups" in API group "" at the cluster scope`},
		"other uid": {headers: http.Header{"Impersonate-User": {"jane"}, "Impersonate-Uid": {"43"}}, status: 403,
			message: `pods is forbidden: User "u" cannot impersonate-on:user-info:list resource "pods" in API group "" at the cluster scope`},
		"one other extra": {headers: http.Header{"Impersonate-User": {"jane"}, "Impersonate-Extra-Scopes": {"view", "edit"}}, status: 403,
			message: `userextras.authentication.k8s.io "edit" is forbidden: User "u" cannot impersonate resource "userextras/scopes" in API group "authentication.k8s.io" at the cluster scope`},
		"other extra": {headers: http.Header{"Impersonate-User": {"jane"}, "Impersonate-Extra-Other": {"view"}}, status: 403},

		"group alone": {headers: http.Header{"Impersonate-Group": {"devs"}}, status: 400, message: `requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"devs"}, Extra:map[string][]string(nil)} without impersonating a user name`},
		"uid alone":   {headers: http.Header{"Impersonate-Uid": {"42"}}, status: 400, message: `requested &user.DefaultInfo{Name:"", UID:"42", Groups:[]string(nil), Extra:map[string][]string(nil)} without impersonating a user name`},
		"extra alone": {headers: http.Header{"Impersonate-Extra-Scopes": {"view"}}, status: 400},
	} {
		t.Run(name, func(t *testing.T) {
			as, w := impersonate(t, a, c.headers)
			if c.as != nil {
				if !reflect.DeepEqual(as, c.as) {
					t.Fatalf("user %+v, want %+v; %s", as, c.as, w.Body)
				}
				return
			}
			status := &metav1.Status{}
			if err := json.Unmarshal(w.Body.Bytes(), status); err != nil || w.Code != c.status || as != nil {
				t.Fatalf("code %d, as %v: %s (%v)", w.Code, as, w.Body, err)
			}
			if c.message != "" && status.Message != c.message {
				t.Errorf("message\n%s\nwant\n%s", status.Message, c.message)
			}
		})
	}
}
