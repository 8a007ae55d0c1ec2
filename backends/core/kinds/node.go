package kinds

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

// nodes is the row of v1 Node. A creator may set the status.
func nodes(cfg Config) *rest.Kind {
	return withSubresources(&rest.Kind{
		Info: resource.Info{
			Versions: []string{"v1"}, Resource: "nodes", Kind: "Node", ShortNames: []string{"no"}, Path: "minions",
		},
		Strategy: rest.Strategy{
			Default: onDefault(defaultNode),
			PrepareCreate: onCreate(func(n *corev1.Node) {
				n.Spec.ConfigSource, n.Status.Config, n.Spec.PodPreemptionPolicy = nil, nil, nil
			}),
			PrepareUpdate: onUpdate(prepareNodeUpdate),
			Validate:      check(validateNode),
			ValidateUpdate: checkUpdate(func(n, old *corev1.Node) field.ErrorList {
				return append(validateNode(n), validateNodeUpdate(n, old)...)
			}),
			Warnings: warn(nodeWarnings),
		},
		Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{
			PrepareUpdate: onUpdate(func(n, old *corev1.Node) {
				old.Spec.DeepCopyInto(&n.Spec)
				if old.Status.Config == nil {
					n.Status.Config = nil
				}
			}),
			ValidateUpdate: checkUpdate(validateNodeUpdate),
		}}},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(),
			column("Status", "string", "Whether the node is ready, and whether pods may be scheduled to it."),
			column("Roles", "string", "The roles of the node, by its labels."),
			ageColumn(),
			column("Version", "string", "The version of the kubelet."),
			wide("Internal-IP", "string", "The first internal address."),
			wide("External-IP", "string", "The first external address."),
			wide("OS-Image", "string", "The operating system."),
			wide("Kernel-Version", "string", "The version of the kernel."),
			wide("Container-Runtime", "string", "The container runtime with its version."),
		},
		Cells:       cells(nodeCells),
		FieldLabels: []string{"spec.unschedulable"},
		Fields: fieldsOf(func(n *corev1.Node) map[string]string {
			return map[string]string{"spec.unschedulable": strconv.FormatBool(n.Spec.Unschedulable)}
		}),
		UnconditionalUpdate: true,
	}, cfg.Connections("nodes"))
}

// defaultNode makes podCIDR the first of podCIDRs; podCIDR wins if they differ.
func defaultNode(n *corev1.Node) {
	s := &n.Spec
	switch {
	case s.PodCIDR == "" && len(s.PodCIDRs) > 0:
		s.PodCIDR = s.PodCIDRs[0]
	case s.PodCIDR != "" && (len(s.PodCIDRs) == 0 || s.PodCIDRs[0] != s.PodCIDR):
		s.PodCIDRs = []string{s.PodCIDR}
	}
	if n.Status.Allocatable == nil {
		n.Status.Allocatable = maps.Clone(n.Status.Capacity)
	}
	rules.RoundUp(n.Status.Capacity)
	rules.RoundUp(n.Status.Allocatable)
}

func prepareNodeUpdate(n, old *corev1.Node) {
	old.Status.DeepCopyInto(&n.Status)
	if old.Spec.ConfigSource == nil {
		n.Spec.ConfigSource = nil
	}
	if old.Spec.PodPreemptionPolicy == nil {
		n.Spec.PodPreemptionPolicy = nil
	}
}

func nodeWarnings(n *corev1.Node) []string {
	var out []string
	if n.Spec.ConfigSource != nil {
		out = append(out, "spec.configSource: the feature is removed")
	}
	if n.Spec.DoNotUseExternalID != "" {
		out = append(out, "spec.externalID: this field is deprecated, and is unused by Kubernetes")
	}
	for i, cidr := range n.Spec.PodCIDRs {
		out = append(out, validation.GetWarningsForCIDR(field.NewPath("spec", "podCIDRs").Index(i), cidr)...)
	}
	return out
}

func nodeCells(n *corev1.Node) []any {
	status := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			status = "NotReady"
			if c.Status == corev1.ConditionTrue {
				status = "Ready"
			}
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	info := &n.Status.NodeInfo
	kernel := cmp.Or(info.KernelVersion, unknown)
	if info.Architecture != "" {
		kernel += " (" + info.Architecture + ")"
	}
	return []any{
		n.Name, status, cmp.Or(strings.Join(nodeRoles(n.Labels), ","), none), age(n.CreationTimestamp), info.KubeletVersion,
		nodeAddress(n, corev1.NodeInternalIP), nodeAddress(n, corev1.NodeExternalIP),
		cmp.Or(info.OSImage, unknown), kernel, cmp.Or(info.ContainerRuntimeVersion, unknown),
	}
}

// nodeRoles returns the roles that labels name, sorted.
func nodeRoles(labels map[string]string) []string {
	var roles []string
	for key, value := range labels {
		if role, ok := strings.CutPrefix(key, "node-role.kubernetes.io/"); ok {
			roles = append(roles, role)
		} else if key == "kubernetes.io/role" {
			roles = append(roles, value)
		}
	}
	slices.Sort(roles)
	return slices.DeleteFunc(slices.Compact(roles), func(role string) bool { return role == "" })
}

// nodeAddress returns the first address of a type.
func nodeAddress(n *corev1.Node, kind corev1.NodeAddressType) string {
	for _, a := range n.Status.Addresses {
		if a.Type == kind {
			return a.Address
		}
	}
	return none
}
