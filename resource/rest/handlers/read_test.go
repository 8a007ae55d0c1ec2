package handlers

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"portico/resource/rest/resttest"
)

func TestGet(t *testing.T) {
	b := newBench(t)
	b.put(b.configMaps, resttest.ConfigMap("a"))
	const whole = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"default","uid":"u-1","resourceVersion":"%s",` +
		`"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"name":"a"}},"data":{"\u003ckey\u003e":"value of a"}}` + "\n"
	resp, body := b.do("GET", inDefault+"configmaps/a")
	var got corev1.ConfigMap
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf(whole, got.ResourceVersion); resp.StatusCode != 200 || body != want || got.ResourceVersion == "" {
		t.Fatalf("%s: %s, want %s", resp.Status, body, want)
	}
	if ct := resp.Header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("content type %q", ct)
	}

	if _, body = b.do("GET", inDefault+"configmaps/a?pretty=1"); !strings.HasPrefix(body, "{\n  \"kind\": \"ConfigMap\",\n") || !strings.HasSuffix(body, "\n}\n") {
		t.Errorf("pretty: %s", body)
	}
	if resp, body = b.do("GET", inDefault+"configmaps/a", "Accept", runtime.ContentTypeYAML); !strings.Contains(body, "\nkind: ConfigMap\n") || resp.Header.Get("Content-Type") != runtime.ContentTypeYAML {
		t.Errorf("YAML: %s", body)
	}
	if _, body = b.do("GET", inDefault+"configmaps/a?resourceVersion=0"); !strings.Contains(body, `"name":"a"`) {
		t.Errorf("any version: %s", body)
	}
	_, body = b.do("GET", inDefault+"configmaps/a", "Accept", runtime.ContentTypeProtobuf)
	decoder := protobuf.NewSerializer(resttest.CoreScheme(), resttest.CoreScheme())
	obj, gvk, err := decoder.Decode([]byte(body), nil, nil)
	if err != nil || gvk.Kind != "ConfigMap" || obj.(*corev1.ConfigMap).ResourceVersion != got.ResourceVersion {
		t.Errorf("protobuf: %+v, %v", obj, err)
	}
}

func TestList(t *testing.T) {
	b := newBench(t)
	_, body := b.do("GET", inDefault+"configmaps")
	var list corev1.ConfigMapList
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	if want := `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"` + list.ResourceVersion + `"},"items":[]}` + "\n"; body != want || list.ResourceVersion == "" {
		t.Fatalf("empty list %s, want %s", body, want)
	}
	for _, name := range []string{"c", "a", "b"} {
		b.put(b.configMaps, resttest.ConfigMap(name))
	}
	names := func(body string) string {
		t.Helper()
		var list corev1.ConfigMapList
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			t.Fatal(err, body)
		}
		s := ""
		for _, item := range list.Items {
			s += item.Name
			if item.Kind != "" || item.APIVersion != "" {
				t.Errorf("item with type: %s", body)
			}
		}
		if list.RemainingItemCount != nil {
			s += fmt.Sprintf("+%d", *list.RemainingItemCount)
		}
		return s
	}
	for query, want := range map[string]string{
		"":                                  "abc",
		"?labelSelector=name+in+(a,c)":      "ac",
		"?fieldSelector=metadata.name%3Db":  "b",
		"?fieldSelector=metadata.name!%3Db": "ac",
		"?limit=2":                          "ab+1",
		"?limit=2&resourceVersion=0":        "abc",
	} {
		if _, body := b.do("GET", inDefault+"configmaps"+query); names(body) != want {
			t.Errorf("%s: %s, want %s", query, body, want)
		}
	}
	_, body = b.do("GET", inDefault+"configmaps?limit=2")
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	if _, body = b.do("GET", inDefault+"configmaps?limit=2&continue="+list.Continue); names(body) != "c" || strings.Contains(body, `"continue"`) {
		t.Errorf("second page: %s", body)
	}
	if _, body = b.do("GET", inDefault+"configmaps?pretty=true"); !strings.HasPrefix(body, "{\n  \"kind\": \"ConfigMapList\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {\n") || names(body) != "abc" {
		t.Errorf("pretty: %s", body)
	}
	b.put(b.secrets, secretOf("a", "x"))
	b.put(b.secrets, secretOf("b", "y"))
	if _, body := b.do("GET", inDefault+"secrets?fieldSelector=type%3Dy"); strings.Contains(body, `"name":"a"`) || !strings.Contains(body, `"name":"b"`) {
		t.Errorf("selected by a field of the kind: %s", body)
	}
	_, body = b.do("GET", inDefault+"configmaps", "Accept", runtime.ContentTypeProtobuf)
	obj, _, err := protobuf.NewSerializer(resttest.CoreScheme(), resttest.CoreScheme()).Decode([]byte(body), nil, nil)
	if err != nil || len(obj.(*corev1.ConfigMapList).Items) != 3 || obj.(*corev1.ConfigMapList).Items[2].Data["<key>"] != "value of c" {
		t.Errorf("protobuf: %+v, %v", obj, err)
	}
}

func TestListFailsAsAWholeForABadObject(t *testing.T) {
	b := newBench(t)
	b.put(b.configMaps, resttest.ConfigMap("a"))
	b.putBad()
	resp, body := b.do("GET", inDefault+"configmaps", "Accept", runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON+";q=0.5")
	if resp.StatusCode != 500 || !strings.Contains(body, string(metav1.StatusReasonStoreReadError)) {
		t.Errorf("%s %q", resp.Status, body)
	}
	if resp, _ := b.do("GET", inDefault+"configmaps/a"); resp.StatusCode != 200 {
		t.Errorf("a good object beside a bad one: %s", resp.Status)
	}
}
