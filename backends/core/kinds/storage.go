package kinds

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/kubernetes/pkg/registry/storage/csidriver"
	"k8s.io/kubernetes/pkg/registry/storage/csinode"
	"k8s.io/kubernetes/pkg/registry/storage/csistoragecapacity"
	"k8s.io/kubernetes/pkg/registry/storage/storageclass"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattachment"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattributesclass"
)

// storageRows are the resources of storage.k8s.io.
func storageRows() []row {
	const group = storagev1.GroupName
	return []row{
		{Info: clusterwide(group, "csidrivers", "CSIDriver"), strategy: csidriver.Strategy, returnDeleted: true},
		{
			Info:     clusterwide(group, "csinodes", "CSINode"),
			strategy: csinode.Strategy, status: csinode.StatusStrategy, returnDeleted: true,
		},
		{Info: namespaced(group, "csistoragecapacities", "CSIStorageCapacity"), strategy: csistoragecapacity.Strategy},
		{Info: clusterwide(group, "storageclasses", "StorageClass", "sc"), strategy: storageclass.Strategy, returnDeleted: true},
		{
			Info:     clusterwide(group, "volumeattachments", "VolumeAttachment"),
			strategy: volumeattachment.Strategy, status: volumeattachment.StatusStrategy, returnDeleted: true,
		},
		{
			Info:     clusterwide(group, "volumeattributesclasses", "VolumeAttributesClass", "vac"),
			strategy: volumeattributesclass.Strategy, returnDeleted: true,
		},
	}
}
