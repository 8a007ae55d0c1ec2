package devices

//lint:file-ignore ST1003 the generators give the functions their names

import (
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The generated defaults call the SetDefaults functions by their names.

// SetDefaults_ExactDeviceRequest makes a request one for one device.
func SetDefaults_ExactDeviceRequest(request *resourcev1.ExactDeviceRequest) {
	defaultCount(&request.AllocationMode, &request.Count)
}

// SetDefaults_DeviceSubRequest makes an alternative a request for one device.
func SetDefaults_DeviceSubRequest(request *resourcev1.DeviceSubRequest) {
	defaultCount(&request.AllocationMode, &request.Count)
}

func defaultCount(mode *resourcev1.DeviceAllocationMode, count *int64) {
	if *mode == "" {
		*mode = resourcev1.DeviceAllocationModeExactCount
	}
	if *mode == resourcev1.DeviceAllocationModeExactCount && *count == 0 {
		*count = 1
	}
}

// SetDefaults_DeviceTaint sets the time of a taint.
func SetDefaults_DeviceTaint(taint *resourcev1.DeviceTaint) {
	if taint.TimeAdded == nil {
		taint.TimeAdded = now()
	}
}

// now is the time in the precision that is stored.
func now() *metav1.Time { return &metav1.Time{Time: time.Now().Truncate(time.Second)} }
