package attack

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A reference from another namespace neither deletes an object nor holds up its deletion. One
// within the namespace does, which is the control.
func TestOwnersInOtherNamespaces(t *testing.T) {
	t.Parallel()
	i := target
	const foreground = `{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Foreground"}`
	maps := func(namespace string) string { return "/api/v1/namespaces/" + namespace + "/configmaps" }
	i.grant(t, "owners", "a", policyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}})
	tenant := i.client(i.user(t, "owners"))
	for child, owner := range map[string]string{"a": "owned-from-a", "b": "owned-from-b"} {
		var made corev1.ConfigMap
		if err := json.Unmarshal([]byte(i.must(t, "POST", maps("b"), `{"metadata":{"name":"`+owner+`"}}`)), &made); err != nil {
			t.Fatal(err)
		}
		client := tenant
		if child == "b" {
			client = i.admin
		}
		code, body, err := i.ask(client, "POST", maps(child), fmt.Sprintf(`{"metadata":{"name":"child-of-%s","finalizers":["example.com/held"],`+
			`"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":%q,"uid":%q,"blockOwnerDeletion":true}]}}`, owner, owner, made.UID))
		if err != nil || code != 201 {
			t.Fatalf("create the child in %s: %d %s %v", child, code, body, err)
		}
	}
	eventually(t, "the Event about the reference", func() error {
		var list corev1.EventList
		code, body, err := i.ask(i.admin, "GET", "/api/v1/namespaces/a/events?fieldSelector=reason%3DOwnerRefInvalidNamespace,involvedObject.name%3Dchild-of-owned-from-a", "")
		if err == nil {
			err = json.Unmarshal([]byte(body), &list)
		}
		if err != nil || len(list.Items) != 1 || list.Items[0].Count != 1 || list.Items[0].Source.Component != "garbage-collector-controller" {
			return fmt.Errorf("%d %.1000s %v, want one event", code, body, err)
		}
		return nil
	})
	i.must(t, "DELETE", maps("b")+"/owned-from-b", foreground)
	i.must(t, "DELETE", maps("b")+"/owned-from-a", foreground)
	eventually(t, "the owner of nothing in its namespace is gone", func() error { return i.answers(maps("b")+"/owned-from-a", 404, "") })
	if err := i.answers(maps("b")+"/owned-from-b", 200, "foregroundDeletion"); err != nil {
		t.Errorf("control: the owner within the namespace: %v", err)
	}
	for _, path := range []string{maps("a") + "/child-of-owned-from-a", maps("b") + "/child-of-owned-from-b"} {
		i.must(t, "PATCH", path, `{"metadata":{"finalizers":null}}`, merge)
	}
	eventually(t, "the other owner is gone", func() error { return i.answers(maps("b")+"/owned-from-b", 404, "") })
	if body := i.must(t, "GET", maps("b"), ""); strings.Contains(body, "owned-from-") {
		t.Errorf("left: %.1000s", body)
	}
}
