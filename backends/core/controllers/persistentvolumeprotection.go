package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// pvFinalizer keeps a bound volume from being deleted.
const pvFinalizer = "kubernetes.io/pv-protection"

// runPVProtection gives volumes their finalizer, and takes it from those that are deleted and
// not bound.
func runPVProtection(ctx context.Context, env *Env) error {
	volumes, queue := env.Informers.Core().V1().PersistentVolumes(), env.NewQueue("pvprotection")
	Handle(env, volumes.Informer(), func(_, pv *corev1.PersistentVolume) {
		if pv != nil && protectionChanges(pv, pvFinalizer) {
			queue.Add(pv.Name)
		}
	})
	return env.Work(ctx, Loop{Queue: queue, Workers: 1, Sync: func(ctx context.Context, _, name string) error {
		pv, err := volumes.Lister().Get(name)
		if err != nil || !protectionChanges(pv, pvFinalizer) || pv.DeletionTimestamp != nil && pv.Status.Phase == corev1.VolumeBound {
			return ignoreNotFound(err)
		}
		patch, err := protectionPatch(pv, pvFinalizer)
		if err != nil {
			return err
		}
		_, err = env.Client.CoreV1().PersistentVolumes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return ignoreNotFound(err)
	}})
}

// protectionChanges reports whether an object lacks its finalizer, or is being deleted and has
// it.
func protectionChanges(o metav1.Object, finalizer string) bool {
	return (o.GetDeletionTimestamp() != nil) == slices.Contains(o.GetFinalizers(), finalizer)
}

// protectionPatch returns a merge patch that adds the finalizer to an object, or removes it if
// the object is being deleted. It fits the state of the informer only.
func protectionPatch(o metav1.Object, finalizer string) ([]byte, error) {
	finalizers := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == finalizer })
	if o.GetDeletionTimestamp() == nil {
		finalizers = append(finalizers, finalizer)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion(), "finalizers": finalizers,
	}})
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return patch, nil
}
