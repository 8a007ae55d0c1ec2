package podrefs

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func parse[T any](t *testing.T, text string) *T {
	t.Helper()
	out := new(T)
	if err := json.Unmarshal([]byte(text), out); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out
}

// Every field of a pod by which its kubelet reads something is found, and names that are empty are not.
func TestPods(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string][4][]string{ // secrets, config maps, claims, resource claims
		`{}`: {},
		`{"imagePullSecrets":[{"name":"a"},{"name":""},{"name":"b"}]}`:                                                              {{"a", "b"}},
		`{"containers":[{"envFrom":[{"secretRef":{"name":"a"}},{"configMapRef":{"name":"b"}},{"prefix":"x"}]}]}`:                    {{"a"}, {"b"}},
		`{"initContainers":[{"env":[{"valueFrom":{"secretKeyRef":{"name":"a"}}},{"value":"x"}]}]}`:                                  {{"a"}},
		`{"initContainers":[{"env":[{"valueFrom":{"configMapKeyRef":{"name":"a"}}},{"valueFrom":{}}]}]}`:                            {nil, {"a"}},
		`{"ephemeralContainers":[{"env":[{"valueFrom":{"secretKeyRef":{"name":"a"}}}],"envFrom":[{"configMapRef":{"name":"b"}}]}]}`: {{"a"}, {"b"}},
		`{"volumes":[{"secret":{"secretName":"a"}},{"configMap":{"name":"b"}},{"emptyDir":{}}]}`:                                    {{"a"}, {"b"}},
		`{"volumes":[{"projected":{"sources":[{"secret":{"name":"a"}},{"configMap":{"name":"b"}},{"serviceAccountToken":{}}]}}]}`:   {{"a"}, {"b"}},
		`{"volumes":[{"azureFile":{"secretName":"a"}}]}`:                                                                            {{"a"}},
		`{"volumes":[{"cephfs":{"secretRef":{"name":"a"}}}]}`:                                                                       {{"a"}},
		`{"volumes":[{"cinder":{"secretRef":{"name":"a"}}}]}`:                                                                       {{"a"}},
		`{"volumes":[{"flexVolume":{"secretRef":{"name":"a"}}}]}`:                                                                   {{"a"}},
		`{"volumes":[{"rbd":{"secretRef":{"name":"a"}}}]}`:                                                                          {{"a"}},
		`{"volumes":[{"scaleIO":{"secretRef":{"name":"a"}}}]}`:                                                                      {{"a"}},
		`{"volumes":[{"iscsi":{"secretRef":{"name":"a"}}}]}`:                                                                        {{"a"}},
		`{"volumes":[{"storageos":{"secretRef":{"name":"a"}}}]}`:                                                                    {{"a"}},
		`{"volumes":[{"csi":{"nodePublishSecretRef":{"name":"a"}}}]}`:                                                               {{"a"}},
		`{"volumes":[{"csi":{}},{"rbd":{}}]}`:                                                                                       {},
		`{"volumes":[{"persistentVolumeClaim":{"claimName":"a"}},{"name":"v","ephemeral":{}}]}`:                                     {nil, nil, {"a", "pod-v"}},
		`{"resourceClaims":[{"resourceClaimName":"a"},{"resourceClaimTemplateName":"b"}]}`:                                          {nil, nil, nil, {"a"}},
	} {
		pod := parse[corev1.Pod](t, fmt.Sprintf(`{"metadata":{"name":"pod"},"spec":%s}`, spec))
		got := [4][]string{Secrets(&pod.Spec), ConfigMaps(&pod.Spec), Claims(pod), ResourceClaims(pod)}
		for i := range got {
			if !slices.Equal(got[i], want[i]) {
				t.Errorf("%s: got %q, want %q", spec, got, want)
			}
		}
	}
	pod := parse[corev1.Pod](t, `{"spec":{"resourceClaims":[{"name":"r","resourceClaimTemplateName":"x"},{"name":"s","resourceClaimTemplateName":"x"},{"name":"t","resourceClaimTemplateName":"x"},{"name":"u"}]},
"status":{"resourceClaimStatuses":[{"name":"r","resourceClaimName":"a"},{"name":"s"},{"name":"u","resourceClaimName":"c"},{"name":"none","resourceClaimName":"d"}],"extendedResourceClaimStatus":{"resourceClaimName":"b"}}}`)
	if got := ResourceClaims(pod); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("claims that were created for a pod: %q", got)
	}
}

// A loop over containers has all three kinds, and may end at any of them.
func TestContainers(t *testing.T) {
	t.Parallel()
	pod := parse[corev1.PodSpec](t, `{"initContainers":[{"name":"a"}],"containers":[{"name":"b"}],"ephemeralContainers":[{"name":"c"}]}`)
	for last, want := range map[string]string{"a": "a", "b": "ab", "c": "abc"} {
		got := ""
		for c := range Containers(pod) {
			if got += c.Name; c.Name == last {
				break
			}
		}
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// The secrets of a volume are those that kubelets read, in the namespace of the claim where it has
// none of its own.
func TestVolumes(t *testing.T) {
	t.Parallel()
	const ref = `{"name":"a","namespace":"x"}`
	for source, want := range map[string][]Secret{
		`"nfs":{}`:                       nil,
		`"azureFile":{"secretName":"a"}`: {{"ns", "a"}},
		`"azureFile":{"secretName":"a","secretNamespace":"x"}`: {{"x", "a"}},
		`"azureFile":{"secretName":"a","secretNamespace":""}`:  {{"ns", "a"}},
		`"azureFile":{}`:                          nil,
		`"cephfs":{"secretRef":{"name":"a"}}`:     {{"ns", "a"}},
		`"cephfs":{"secretRef":` + ref + `}`:      {{"x", "a"}},
		`"cinder":{"secretRef":` + ref + `}`:      {{"x", "a"}},
		`"flexVolume":{"secretRef":{"name":"a"}}`: {{"ns", "a"}},
		`"rbd":{"secretRef":{"name":"a"}}`:        {{"ns", "a"}},
		`"scaleIO":{"secretRef":{"name":"a"}}`:    {{"ns", "a"}},
		`"iscsi":{"secretRef":{"name":"a"}}`:      {{"ns", "a"}},
		`"iscsi":{"secretRef":{"name":""}}`:       nil,
		`"storageos":{"secretRef":` + ref + `}`:   {{"x", "a"}},
		`"csi":{"nodePublishSecretRef":` + ref + `,"nodeStageSecretRef":{"name":"b","namespace":"x"},"nodeExpandSecretRef":{"name":"c","namespace":"x"}}`: {{"x", "a"}, {"x", "b"}, {"x", "c"}},
		`"csi":{"controllerPublishSecretRef":` + ref + `,"controllerExpandSecretRef":` + ref + `}`:                                                        nil,
	} {
		pv := parse[corev1.PersistentVolume](t, `{"spec":{"claimRef":{"namespace":"ns","name":"claim"},`+source+`}}`)
		if got := VolumeSecrets(pv); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", source, got, want)
		}
	}
}
