package handlers

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/resttest"
)

// The time for metadata grows no faster than its size. The deadline is a hundred times the
// usual time, and a tenth of that of a quadratic comparison.
func TestLongMetadata(t *testing.T) {
	t.Parallel()
	const many, deadline = 200_000, 20 * time.Second
	cm := bare("a")
	var finalizers []string
	for i := range many {
		cm.OwnerReferences = append(cm.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "X", Name: "n", UID: types.UID(fmt.Sprint(i % (many - 1)))})
		finalizers = append(finalizers, fmt.Sprintf("example.com/f%d", i))
	}
	act := &resource.Action{IsResource: true, Version: "v1", Resource: "configmaps", Namespace: "default"}
	w := newWrite(New(Config{}), act, &rest.Resource{Kind: resttest.ConfigMaps()}, nil, writeOptions{})
	start := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.dedupeOwners(context.Background(), cm, false)
		if kept := deletionFinalizers(finalizers, &metav1.DeleteOptions{}, &rest.Strategy{}); len(kept) != many {
			t.Errorf("%d finalizers", len(kept))
		}
	}()
	select {
	case <-done:
		t.Log(time.Since(start))
	case <-time.After(deadline):
		t.Fatal("it takes longer than the deadline")
	}
	if n := len(cm.OwnerReferences); n != many-1 {
		t.Errorf("%d owners", n)
	}
}

// Owner references that differ in omitted fields are not duplicates.
func TestOwnerReferencesThatDifferAreKept(t *testing.T) {
	yes, no := true, false
	cm := bare("a")
	for _, controller := range []*bool{nil, &yes, &no, &yes} {
		for _, blocks := range []*bool{nil, &yes, &no} {
			cm.OwnerReferences = append(cm.OwnerReferences, metav1.OwnerReference{UID: "1", Controller: controller, BlockOwnerDeletion: blocks})
		}
	}
	act := &resource.Action{IsResource: true, Version: "v1", Resource: "configmaps", Namespace: "default"}
	newWrite(New(Config{}), act, &rest.Resource{Kind: resttest.ConfigMaps()}, nil, writeOptions{}).dedupeOwners(context.Background(), cm, false)
	if n := len(cm.OwnerReferences); n != 9 {
		t.Errorf("%d are kept", n)
	}
}
