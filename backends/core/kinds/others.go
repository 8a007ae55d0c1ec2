package kinds

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/kubernetes/pkg/registry/coordination/lease"
	"k8s.io/kubernetes/pkg/registry/discovery/endpointslice"
	"k8s.io/kubernetes/pkg/registry/node/runtimeclass"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
	"k8s.io/kubernetes/pkg/registry/scheduling/priorityclass"
	"k8s.io/kubernetes/pkg/registry/storagemigration/storagemigration"
)

// otherRows are the resources of groups with one resource.
func otherRows() []row {
	return []row{
		{Info: namespaced(coordinationv1.GroupName, "leases", "Lease"), strategy: lease.Strategy},
		{
			Info:     namespaced(discoveryv1.GroupName, "endpointslices", "EndpointSlice"),
			strategy: endpointslice.Strategy,
		},
		{Info: clusterwide(nodev1.GroupName, "runtimeclasses", "RuntimeClass"), strategy: runtimeclass.Strategy},
		{
			Info:     namespaced(policyv1.GroupName, "poddisruptionbudgets", "PodDisruptionBudget", "pdb"),
			strategy: poddisruptionbudget.Strategy, status: poddisruptionbudget.StatusStrategy,
		},
		{
			Info:     clusterwide(schedulingv1.GroupName, "priorityclasses", "PriorityClass", "pc"),
			strategy: priorityclass.Strategy,
		},
		{
			Info:     clusterwide(storagemigrationv1.GroupName, "storageversionmigrations", "StorageVersionMigration"),
			strategy: storagemigration.Strategy, status: storagemigration.StatusStrategy,
		},
	}
}
