package kinds

import (
	"context"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"portico/backends/core/kinds/podspec"
	"portico/resource"
	"portico/resource/rest"
)

var podSpecChanged = changed(func(p, old *corev1.Pod) bool { return !equality.Semantic.DeepEqual(p.Spec, old.Spec) })

// pods is the row of v1 Pod.
func pods(cfg Config) *rest.Kind {
	return withSubresources(&rest.Kind{
		Info: resource.Info{
			Versions: []string{"v1"}, Resource: "pods", Kind: "Pod", Namespaced: true, ShortNames: []string{"po"}, Categories: []string{"all"},
		},
		Strategy: rest.Strategy{
			Default:         onDefault(podspec.SetPodDefaults),
			TrackGeneration: true,
			SpecChanged:     podSpecChanged,
			PrepareCreate: func(ctx context.Context, obj rest.Object) {
				for _, text := range preparePod(obj.(*corev1.Pod)) {
					cfg.Warn(ctx, text)
				}
			},
			PrepareUpdate: onUpdate(func(p, old *corev1.Pod) {
				old.Status.DeepCopyInto(&p.Status)
				if p.Spec.Resources == nil {
					p.Spec.Resources = old.Spec.Resources.DeepCopy()
				}
				podspec.DropFields(&p.Spec, p.Annotations, &old.Spec)
			}),
			Validate:       check(validatePod),
			ValidateUpdate: checkUpdate(validatePodUpdate),
			Warnings: func(_ context.Context, obj, old rest.Object) []string {
				if old != nil {
					return nil
				}
				return append(hostNameWarning(obj.GetName()), podspec.Warnings(obj.(*corev1.Pod))...)
			},
			Grace: func(obj rest.Object, asked *int64) int64 { return podGrace(obj.(*corev1.Pod), asked) },
		},
		Subresources: []rest.Subresource{
			{Name: "ephemeralcontainers", Strategy: &rest.Strategy{
				TrackGeneration: true, SpecChanged: podSpecChanged,
				PrepareUpdate:  onUpdate(prepareEphemeral),
				ValidateUpdate: checkUpdate(validateEphemeralUpdate),
			}},
			{Name: "resize", Strategy: &rest.Strategy{
				TrackGeneration: true, SpecChanged: podSpecChanged,
				PrepareUpdate:  onUpdate(prepareResize),
				ValidateUpdate: checkUpdate(validateResize),
			}},
			{Name: "status", Strategy: &rest.Strategy{
				Resets:         []string{"metadata.deletionTimestamp", "metadata.ownerReferences", "spec"},
				PrepareUpdate:  onUpdate(preparePodStatus),
				ValidateUpdate: checkUpdate(validatePodStatus),
			}},
		},
		Columns: podTableColumns(),
		Cells:   cells(podCells),
		FieldLabels: []string{
			"spec.host", "spec.hostNetwork", "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
			"status.nominatedNodeName", "status.phase", "status.podIP", "status.podIPs",
		},
		Fields:              fieldsOf(podFields),
		UnconditionalUpdate: true,
		ReturnDeleted:       true,
	}, append(podCalls(cfg), cfg.Connections("pods")...))
}

func podFields(p *corev1.Pod) map[string]string {
	return map[string]string{
		"spec.host":                p.Spec.NodeName, // as clients of old releases call it
		"spec.hostNetwork":         strconv.FormatBool(p.Spec.HostNetwork),
		"spec.nodeName":            p.Spec.NodeName,
		"spec.restartPolicy":       string(p.Spec.RestartPolicy),
		"spec.schedulerName":       p.Spec.SchedulerName,
		"spec.serviceAccountName":  p.Spec.ServiceAccountName,
		"status.nominatedNodeName": p.Status.NominatedNodeName,
		"status.phase":             string(p.Status.Phase),
		"status.podIP":             p.Status.PodIP,
		"status.podIPs":            "", // known, but without a value
	}
}

// podGrace returns the grace period of a deletion. A pod that no node runs has none.
func podGrace(p *corev1.Pod, asked *int64) int64 {
	if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return 0
	}
	if asked == nil {
		asked = p.Spec.TerminationGracePeriodSeconds
	}
	switch {
	case asked == nil:
		return 0
	case *asked < 0:
		return 1
	}
	return *asked
}

// preparePod sets what a new pod gets beside its defaults, and returns warnings about what it was.
func preparePod(p *corev1.Pod) (warnings []string) {
	spec := &p.Spec
	p.Status = corev1.PodStatus{Phase: corev1.PodPending}
	podspec.DropFields(spec, p.Annotations, nil)
	if len(spec.SchedulingGates) > 0 {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, LastTransitionTime: metav1.Now(),
			Reason: corev1.PodReasonSchedulingGated, Message: "Scheduling is blocked due to non-empty scheduling gates",
		}}
	}
	podspec.MergeLabelKeys(spec, p.Labels)
	warnings = podspec.AppArmorFields(spec, p.Annotations)
	defaultPodResources(spec)
	p.Status.QOSClass = qosClass(spec)
	return warnings
}

// prepareEphemeral keeps all of the stored pod but its ephemeral containers.
func prepareEphemeral(p, old *corev1.Pod) {
	containers := p.Spec.EphemeralContainers
	keepPod(p, old)
	p.Spec.EphemeralContainers = containers
	podspec.DropFields(&p.Spec, p.Annotations, &old.Spec)
}

// keepPod restores spec, status and most of the metadata.
func keepPod(p, old *corev1.Pod) {
	old.Spec.DeepCopyInto(&p.Spec)
	old.Status.DeepCopyInto(&p.Status)
	metav1.ResetObjectMetaForStatus(&p.ObjectMeta, &old.ObjectMeta)
}

// prepareResize keeps all of the stored pod but the resources of the pod and its containers,
// unless containers are added or removed, which is an error.
func prepareResize(p, old *corev1.Pod) {
	if len(p.Spec.Containers) == len(old.Spec.Containers) && len(p.Spec.InitContainers) == len(old.Spec.InitContainers) {
		containers, inits, whole := p.Spec.Containers, p.Spec.InitContainers, p.Spec.Resources
		keepPod(p, old)
		p.Spec.Containers = resized(containers, old.Spec.Containers)
		p.Spec.InitContainers = resized(inits, old.Spec.InitContainers)
		p.Spec.Resources = whole
	}
	if p.Spec.Resources == nil {
		p.Spec.Resources = old.Spec.Resources.DeepCopy()
	}
	defaultPodResources(&p.Spec)
	podspec.DropFields(&p.Spec, p.Annotations, &old.Spec)
}

// resized returns the old containers with the resources of the new ones. Containers in
// another order are not changed.
func resized(containers, old []corev1.Container) []corev1.Container {
	if !slices.EqualFunc(containers, old, func(a, b corev1.Container) bool { return a.Name == b.Name }) {
		return containers
	}
	out := slices.Clone(old)
	for i, c := range containers {
		out[i].Resources, out[i].ResizePolicy = c.Resources, c.ResizePolicy
	}
	return out
}

func preparePodStatus(p, old *corev1.Pod) {
	old.Spec.DeepCopyInto(&p.Spec)
	p.DeletionTimestamp, p.OwnerReferences = old.DeletionTimestamp, old.OwnerReferences
	s, was := &p.Status, old.Status.DeepCopy()
	if s.QOSClass == "" {
		s.QOSClass = was.QOSClass
	}
	// Clients that do not know these fields drop them.
	if s.ResourceClaimStatuses == nil {
		s.ResourceClaimStatuses = was.ResourceClaimStatuses
	}
	if s.ExtendedResourceClaimStatus == nil {
		s.ExtendedResourceClaimStatus = was.ExtendedResourceClaimStatus
	}
	s.NodeAllocatableResourceClaimStatuses = was.NodeAllocatableResourceClaimStatuses
	s.VolumeHealth = was.VolumeHealth
	if s.ObservedGeneration == 0 {
		s.ObservedGeneration = was.ObservedGeneration
	}
	generations := map[corev1.PodConditionType][]int64{}
	for _, c := range was.Conditions {
		generations[c.Type] = append(generations[c.Type], c.ObservedGeneration)
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if all := generations[c.Type]; len(all) > 0 {
			if c.ObservedGeneration == 0 {
				c.ObservedGeneration = all[0]
			}
			generations[c.Type] = all[1:]
		}
	}
	if !slices.ContainsFunc(volumeMounts(&old.Status), func(m *corev1.VolumeMountStatus) bool { return m.VolumeStatus != nil }) {
		for _, m := range volumeMounts(s) {
			m.VolumeStatus = nil
		}
	}
	podspec.DropFields(&p.Spec, p.Annotations, &old.Spec)
}

// volumeMounts returns the mounted volumes of all containers.
func volumeMounts(s *corev1.PodStatus) []*corev1.VolumeMountStatus {
	var all []*corev1.VolumeMountStatus
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			for j := range list[i].VolumeMounts {
				all = append(all, &list[i].VolumeMounts[j])
			}
		}
	}
	return all
}

// hostNameWarning warns of a name that is not a host name.
func hostNameWarning(name string) []string {
	messages := validation.IsDNS1123Label(name)
	if len(messages) == 0 {
		return nil
	}
	return []string{"metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [" + strings.Join(messages, " ") + "]"}
}
