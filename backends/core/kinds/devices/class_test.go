package devices

import (
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Taints keep their times when they are written again without one; others get that of the writer.
func TestTaintTimes(t *testing.T) {
	t.Parallel()
	before, sent := metav1.NewTime(time.Now().Add(-time.Hour)), metav1.NewTime(time.Now().Add(-time.Minute))
	for name, test := range map[string]struct {
		device string
		taint  resourcev1.DeviceTaint
		keeps  bool
	}{
		"written again": {"a", resourcev1.DeviceTaint{Key: "k", Value: "v", Effect: "NoExecute"}, true},
		"with a time":   {"a", resourcev1.DeviceTaint{Key: "k", Value: "v", Effect: "NoExecute", TimeAdded: &sent}, false},
		"other effect":  {"a", resourcev1.DeviceTaint{Key: "k", Value: "v", Effect: "NoSchedule"}, false},
		"other device":  {"b", resourcev1.DeviceTaint{Key: "k", Value: "v", Effect: "NoExecute"}, false},
	} {
		SetDefaults_DeviceTaint(&test.taint)
		want := *test.taint.TimeAdded
		if test.keeps {
			want = before
		}
		old := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{Devices: []resourcev1.Device{
			{Name: "a", Taints: []resourcev1.DeviceTaint{{Key: "k", Value: "v", Effect: "NoExecute", TimeAdded: &before}}},
		}}}
		slice := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{Devices: []resourcev1.Device{{Name: test.device, Taints: []resourcev1.DeviceTaint{test.taint}}}}}
		KeepTaintTimes(slice, old)
		if got := slice.Spec.Devices[0].Taints[0].TimeAdded; !got.Equal(&want) {
			t.Errorf("%s: the time is %v, want %v", name, got, want)
		}
		if test.device != "a" {
			continue
		}
		RenewTaint(&test.taint, &old.Spec.Devices[0].Taints[0])
		if got := test.taint.TimeAdded; !got.Equal(&want) {
			t.Errorf("%s, of a rule: the time is %v, want %v", name, got, want)
		}
	}
}
