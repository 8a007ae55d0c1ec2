package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/scale"
)

// podOwners finds the scale of the controllers of pods: those of workloads by informers, all
// others by the subresource scale.
type podOwners struct {
	env          *Env
	replicaSets  appslisters.ReplicaSetLister
	deployments  appslisters.DeploymentLister
	statefulSets appslisters.StatefulSetLister
	controllers  corelisters.ReplicationControllerLister
	scales       scale.ScalesGetter
	converter    *scale.ScaleConverter
}

func newPodOwners(env *Env) (*podOwners, error) {
	scales, err := scale.NewForConfig(env.Gateway, env.Mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(env.Client.Discovery()))
	if err != nil {
		return nil, fmt.Errorf("make client of scales: %w", err)
	}
	apps, core := env.Informers.Apps().V1(), env.Informers.Core().V1()
	env.Use(apps.ReplicaSets().Informer(), apps.Deployments().Informer(), apps.StatefulSets().Informer(), core.ReplicationControllers().Informer())
	return &podOwners{
		env: env, replicaSets: apps.ReplicaSets().Lister(), deployments: apps.Deployments().Lister(), statefulSets: apps.StatefulSets().Lister(),
		controllers: core.ReplicationControllers().Lister(), scales: scales, converter: scale.NewScaleConverter(),
	}, nil
}

// errNoOwner means that a controller does not exist.
var errNoOwner = errors.New("the controller does not exist")

// scale returns the uid and the scale of the controller of a pod; of a ReplicaSet of a
// Deployment, those of the Deployment.
func (o *podOwners) scale(ctx context.Context, namespace string, ref *metav1.OwnerReference) (types.UID, int32, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return "", 0, err
	}
	apps := []string{appsv1.GroupName, "extensions"}
	switch {
	case ref.Kind == "ReplicationController" && gv.Group == corev1.GroupName:
		if rc, err := o.controllers.ReplicationControllers(namespace).Get(ref.Name); err == nil && rc.UID == ref.UID {
			return rc.UID, *rc.Spec.Replicas, nil
		}
	case ref.Kind == "StatefulSet" && gv.Group == appsv1.GroupName:
		if ss, err := o.statefulSets.StatefulSets(namespace).Get(ref.Name); err == nil && ss.UID == ref.UID {
			return ss.UID, *ss.Spec.Replicas, nil
		}
	case ref.Kind == "ReplicaSet" && slices.Contains(apps, gv.Group):
		rs, err := o.replicaSets.ReplicaSets(namespace).Get(ref.Name)
		if err != nil || rs.UID != ref.UID {
			break
		}
		owner := metav1.GetControllerOf(rs)
		if owner == nil || owner.Kind != "Deployment" {
			return rs.UID, *rs.Spec.Replicas, nil
		}
		if d, err := o.deployments.Deployments(namespace).Get(owner.Name); err == nil && d.UID == owner.UID {
			return d.UID, *d.Spec.Replicas, nil
		}
	}
	return o.subresource(ctx, namespace, ref, gv)
}

// subresource returns the uid and the scale of an object by its subresource scale.
func (o *podOwners) subresource(ctx context.Context, namespace string, ref *metav1.OwnerReference, gv schema.GroupVersion) (types.UID, int32, error) {
	mapping, err := o.env.Mapper.RESTMapping(schema.GroupKind{Group: gv.Group, Kind: ref.Kind}, gv.Version)
	if err != nil {
		return "", 0, err
	}
	resource := mapping.Resource.GroupResource()
	got, err := o.scales.Scales(namespace).Get(ctx, resource, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		if has, err := o.scalable(mapping.Resource); err != nil || has {
			return "", 0, cmp.Or(err, errNoOwner)
		}
		return "", 0, fmt.Errorf("%s does not implement the scale subresource", resource)
	case err != nil:
		return "", 0, err
	case got.UID != ref.UID:
		return "", 0, errNoOwner
	}
	return got.UID, got.Spec.Replicas, nil
}

// scalable reports whether a resource has the subresource scale.
func (o *podOwners) scalable(gvr schema.GroupVersionResource) (bool, error) {
	list, err := o.env.Client.Discovery().ServerResourcesForGroupVersion(gvr.GroupVersion().String())
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool {
		return r.Name == gvr.Resource+"/scale" && r.Kind == "Scale" && slices.Contains(o.converter.ScaleVersions(), schema.GroupVersion{Group: r.Group, Version: r.Version})
	}), nil
}
