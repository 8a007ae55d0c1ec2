package kinds

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/batch"
	"k8s.io/kubernetes/pkg/apis/core"
)

// maxCompared is the number of ports, and of files in volumes, beyond which a pod gets no warnings: strategies compare each
// of them with each other one and make a warning for each pair.
const maxCompared = 250

// comparesTooMuch reports whether the warnings of an object of an internal version would cost too much.
func comparesTooMuch(obj runtime.Object) bool {
	spec := podSpecOf(obj)
	if spec == nil {
		return false
	}
	ports, files := 0, 0
	for i := range spec.InitContainers {
		ports += len(spec.InitContainers[i].Ports)
	}
	for i := range spec.Containers {
		ports += len(spec.Containers[i].Ports)
	}
	for i := range spec.Volumes {
		files += filesOf(&spec.Volumes[i].VolumeSource)
	}
	return ports > maxCompared || files > maxCompared
}

// filesOf returns the number of files that a volume names.
func filesOf(v *core.VolumeSource) int {
	n := 0
	if v.ConfigMap != nil {
		n += len(v.ConfigMap.Items)
	}
	if v.Secret != nil {
		n += len(v.Secret.Items)
	}
	if v.DownwardAPI != nil {
		n += len(v.DownwardAPI.Items)
	}
	if v.Projected == nil {
		return n
	}
	for _, s := range v.Projected.Sources {
		n++
		if s.ConfigMap != nil {
			n += len(s.ConfigMap.Items)
		}
		if s.Secret != nil {
			n += len(s.Secret.Items)
		}
		if s.DownwardAPI != nil {
			n += len(s.DownwardAPI.Items)
		}
	}
	return n
}

// podSpecOf returns the pod spec in an object; nil if it has none.
func podSpecOf(obj runtime.Object) *core.PodSpec {
	switch o := obj.(type) {
	case *core.Pod:
		return &o.Spec
	case *core.PodTemplate:
		return &o.Template.Spec
	case *core.ReplicationController:
		if o.Spec.Template != nil {
			return &o.Spec.Template.Spec
		}
	case *apps.DaemonSet:
		return &o.Spec.Template.Spec
	case *apps.Deployment:
		return &o.Spec.Template.Spec
	case *apps.ReplicaSet:
		return &o.Spec.Template.Spec
	case *apps.StatefulSet:
		return &o.Spec.Template.Spec
	case *batch.CronJob:
		return &o.Spec.JobTemplate.Spec.Template.Spec
	case *batch.Job:
		return &o.Spec.Template.Spec
	}
	return nil
}
