package admission

import (
	"context"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource/rest"
)

// An engine decides without the object as long as nobody wants to see it, and a
// chain if all of its members do.
func TestAdmitUnseen(t *testing.T) {
	b := newBench(t)
	a := &rest.Attributes{Kind: widgets(), Operation: rest.Create}
	unseen := func(list ...rest.Admission) (bool, error) {
		return Chain(list...).(rest.Unseeing).AdmitUnseen(t.Context(), a)
	}
	if decided, err := unseen(b.engine); !decided || err != nil {
		t.Errorf("without configurations: %v %v", decided, err)
	}
	if decided, err := unseen(b.engine, looker{}); decided || err != nil {
		t.Errorf("with somebody who looks: %v %v", decided, err)
	}
	missing := NamespaceLifecycle(LifecycleConfig{Lookup: func(context.Context, string, bool) (NamespaceState, error) { return NamespaceState{}, nil }})
	a.Key.Namespace = "none"
	if decided, err := unseen(missing, b.engine); !decided || !apierrors.IsNotFound(err) {
		t.Errorf("without the namespace: %v %v", decided, err)
	}
	a.Key.Namespace = ""
	none := func(*admissionv1.ValidatingAdmissionPolicySpec) {}
	for _, configured := range [][]rest.Object{
		{validatingHooks("hooks", validatingHook("a.example.com", newHookServer(t, allow)))},
		{mutatingHooks("hooks", mutatingHook("a.example.com", newHookServer(t, allow)))},
		{mutatingPolicy("policy"), mutatingBinding("binding", "policy")},
		{validatingPolicy("policy", none), validatingBinding("binding", "policy", func(*admissionv1.ValidatingAdmissionPolicyBindingSpec) {})},
	} {
		b.configure(configured...)
		if decided, err := unseen(b.engine); decided || err != nil {
			t.Errorf("with %T: %v %v", configured[0], decided, err)
		}
		b.unconfigure(configured...)
	}
}

// What is not known yet cannot be decided.
func TestAdmitUnseenUnknown(t *testing.T) {
	b := newBench(t, func(cfg *EngineConfig) { cfg.FirstRead = time.Millisecond })
	engine, err := NewEngine(b.engine.cfg)
	if err != nil {
		t.Fatal(err)
	}
	// Nobody runs it.
	if decided, err := engine.AdmitUnseen(t.Context(), &rest.Attributes{Kind: widgets(), Operation: rest.Create}); !decided || !apierrors.IsServiceUnavailable(err) {
		t.Errorf("got %v %v", decided, err)
	}
}

// looker is an Admission that wants to see everything.
type looker struct{}

func (looker) Mutate(context.Context, *rest.Attributes) error   { return nil }
func (looker) Validate(context.Context, *rest.Attributes) error { return nil }
