// Package storetest is the conformance suite of resource.Store and resource.Feed. Every
// implementation passes it.
//
// Decisions:
//
//   - Tests use the interface only: names, data, labels, revisions. Objects are compared by
//     their data, because a store over HTTP may add metadata.
//   - Tests do not sleep. They wait for events, up to patience.
//   - A store may refuse what it does not have (TTL, names that HTTP cannot carry, watches)
//     with BadRequest, Invalid or MethodNotSupported; the test of it is skipped then.
//
// Runs in: tests.
package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// patience bounds the wait for an event.
const patience = 30 * time.Second

// Namespaced is the resource that most tests use.
func Namespaced() *resource.Info {
	return &resource.Info{
		Group: "storetest.portico.dev", Versions: []string{"v1"},
		Resource: "settings", Singular: "setting", Kind: "Setting",
		Namespaced: true, Path: "storetest.portico.dev/settings",
	}
}

// ClusterScoped is a resource outside of namespaces.
func ClusterScoped() *resource.Info {
	return &resource.Info{
		Group: "storetest.portico.dev", Versions: []string{"v1"},
		Resource: "globals", Singular: "global", Kind: "Global",
		Path: "storetest.portico.dev/globals",
	}
}

// Open returns an empty store of one resource for one test, and ends it by t.Cleanup.
type Open = func(t *testing.T, info *resource.Info) resource.Store

// Run checks the contract of resource.Store.
func Run(t *testing.T, open Open) { runAll(t, open, false) }

// RunInBubble is Run for a store without sockets. Each test runs in a bubble of
// testing/synctest: time-outs end without waiting, and only if nothing else can run.
func RunInBubble(t *testing.T, open Open) { runAll(t, open, true) }

func runAll(t *testing.T, open Open, bubble bool) {
	groups := []struct {
		name  string
		tests []test
	}{
		{"Get", getTests}, {"Create", createTests}, {"Update", updateTests}, {"Delete", deleteTests},
		{"List", listTests}, {"Page", pageTests}, {"Watch", watchTests}, {"Together", togetherTests},
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			run(t, g.tests, open, bubble)
		})
	}
}

// test is one property of a Store.
type test struct {
	name string
	f    func(t *testing.T, s *subject)
}

func run(t *testing.T, tests []test, open Open, bubble bool) {
	for _, tt := range tests {
		f := func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			t.Cleanup(cancel)
			tt.f(t, &subject{T: t, ctx: ctx, open: open})
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if bubble {
				synctest.Test(t, f)
			} else {
				f(t)
			}
		})
	}
}

// subject is the store under test with shorthands that fail the test.
type subject struct {
	*testing.T
	resource.Store
	ctx  context.Context
	open Open
}

// on opens a fresh store of one resource.
func (s *subject) on(info *resource.Info) *subject {
	s.Store = s.open(s.T, info)
	return s
}

// object is the decoded form of the suite's objects.
type object struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metadata          `json:"metadata"`
	Data       map[string]string `json:"data,omitempty"`
}

type metadata struct {
	Namespace       string            `json:"namespace,omitempty"`
	Name            string            `json:"name"`
	Labels          map[string]string `json:"labels,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
}

func key(namespace, name string) resource.Key {
	return resource.Key{Namespace: namespace, Name: name}
}

// make builds an object with the data {"v": value}. labels are pairs.
func (s *subject) make(k resource.Key, value string, labels ...string) *resource.Object {
	s.Helper()
	info := s.Info()
	o := object{
		APIVersion: info.Group + "/" + info.Versions[0], Kind: info.Kind,
		Metadata: metadata{Namespace: k.Namespace, Name: k.Name},
		Data:     map[string]string{"v": value},
	}
	for i := 0; i+1 < len(labels); i += 2 {
		if o.Metadata.Labels == nil {
			o.Metadata.Labels = map[string]string{}
		}
		o.Metadata.Labels[labels[i]] = labels[i+1]
	}
	data, err := json.Marshal(o)
	if err != nil {
		s.Fatal(err)
	}
	obj, err := resource.Parse(data)
	if err != nil {
		s.Fatal(err)
	}
	return obj
}

// value reads an object's data back, and checks that its bytes agree with its
// header.
func (s *subject) value(o *resource.Object) string {
	s.Helper()
	if o == nil {
		s.Fatal("object is nil")
	}
	var d object
	if err := json.Unmarshal(o.Data, &d); err != nil {
		s.Fatalf("object is not JSON: %v\n%s", err, o.Data)
	}
	again, err := resource.Parse(o.Data)
	if err != nil {
		s.Fatal(err)
	}
	if o.Revision <= 0 || again.Revision != o.Revision || again.Key() != o.Key() {
		s.Errorf("header (%s at %d) and bytes (%s at %d) disagree", o.Key(), o.Revision, again.Key(), again.Revision)
	}
	return d.Data["v"]
}

// mustCreate creates an object.
func (s *subject) mustCreate(k resource.Key, value string, labels ...string) *resource.Object {
	s.Helper()
	o, err := s.Create(s.ctx, k, s.make(k, value, labels...), 0)
	if err != nil {
		s.Fatalf("create %s: %v", k, err)
	}
	return o
}

// mustSet updates an object to a value and labels.
func (s *subject) mustSet(k resource.Key, value string, labels ...string) *resource.Object {
	s.Helper()
	o, err := s.Update(s.ctx, k, func(*resource.Object) (resource.Mutation, error) {
		return resource.Mutation{Object: s.make(k, value, labels...)}, nil
	})
	if err != nil {
		s.Fatalf("update %s: %v", k, err)
	}
	return o
}

// mustDelete deletes an object.
func (s *subject) mustDelete(k resource.Key) *resource.Object {
	s.Helper()
	o, err := s.Delete(s.ctx, k, nil)
	if err != nil {
		s.Fatalf("delete %s: %v", k, err)
	}
	return o
}

// wantError checks an error by its kind and that it is a StatusError.
func (s *subject) wantError(what string, err error, is func(error) bool) {
	s.Helper()
	var status apierrors.APIStatus
	switch {
	case err == nil:
		s.Errorf("%s: no error", what)
	case !errors.As(err, &status):
		s.Errorf("%s: %v (%T) is no StatusError", what, err, err)
	case !is(err):
		s.Errorf("%s: wrong error: %v", what, err)
	}
}

// isTooLarge is the error for a revision in the future.
func isTooLarge(err error) bool {
	return apierrors.IsTimeout(err) && apierrors.HasStatusCause(err, resource.CauseResourceVersionTooLarge)
}

// skipIfRefused skips a test of what the store does not have.
func (s *subject) skipIfRefused(err error) {
	s.Helper()
	if apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) || apierrors.IsMethodNotSupported(err) {
		s.Skipf("the store refuses this: %v", err)
	}
}
