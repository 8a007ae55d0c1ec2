package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/authz"
)

// bench is an Authorizer over a core server in memory.
type bench struct {
	*testing.T
	*Authorizer
	storage *memstore.Storage
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{T: t, storage: memstore.New()}
	b.Authorizer = New(Config{
		Reader: func(info *resource.Info) resource.Reader { return b.storage.Store(info) },
		Others: func(act *resource.Action) bool { return act.Resource == "services" && act.Verb == "list" },
		Logger: slog.New(slog.DiscardHandler),
	})
	return b
}

func (b *bench) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Authorizer.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			b.Errorf("Run ended with %v", err)
		}
	})
}

// store returns the store of a followed kind.
func (b *bench) store(k kind) resource.Store {
	for i := range followed {
		if followed[i].kind == k {
			return b.storage.Store(&followed[i].info)
		}
	}
	b.Fatalf("kind %d is not followed", k)
	return nil
}

// put stores an object, or replaces it.
func (b *bench) put(k kind, namespace, name, rest string) {
	b.Helper()
	store := b.store(k)
	info := store.Info()
	text := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"namespace":%q,"uid":"u-%s"%s`,
		info.GVK(info.Versions[0]).GroupVersion(), info.Kind, name, namespace, name, rest)
	if !json.Valid([]byte(text)) {
		b.Fatal(text)
	}
	obj, err := resource.Parse([]byte(text))
	if err != nil {
		b.Fatal(err)
	}
	_, err = store.Update(b.Context(), resource.Key{Namespace: namespace, Name: name}, func(*resource.Object) (resource.Mutation, error) {
		return resource.Mutation{Object: obj}, nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

// as decides about a request of a node.
func (b *bench) as(node, method, target string) (authz.Decision, string, error) {
	b.Helper()
	r, err := http.NewRequest(method, target, nil)
	if err != nil {
		b.Fatal(err)
	}
	act := resource.ParseAction(r)
	act.User = &resource.User{Name: "system:node:" + node, Groups: []string{"system:nodes"}}
	return b.Authorize(b.Context(), act)
}

// eventually waits for a decision.
func (b *bench) eventually(node, target string, want authz.Decision) {
	b.Helper()
	for deadline := time.Now().Add(await.Patience()); ; time.Sleep(time.Millisecond) {
		got, reason, err := b.as(node, http.MethodGet, target)
		switch {
		case got == want && err == nil:
			return
		case time.Now().After(deadline):
			b.Fatalf("%s: still %v %q %v", target, got, reason, err)
		}
	}
}

const podSpec = `},"spec":{"nodeName":"n1","serviceAccountName":"account","imagePullSecrets":[{"name":"pull"}],
"initContainers":[{"name":"i","envFrom":[{"secretRef":{"name":"init"}},{"configMapRef":{"name":"init"}}]}],
"containers":[{"name":"c","env":[{"name":"E","valueFrom":{"secretKeyRef":{"name":"env","key":"k"}}}]}],
"ephemeralContainers":[{"name":"e","env":[{"name":"E","valueFrom":{"configMapKeyRef":{"name":"env","key":"k"}}}]}],
"resourceClaims":[{"name":"r","resourceClaimName":"device"}],
"volumes":[{"name":"s","secret":{"secretName":"volume"}},{"name":"c","configMap":{"name":"volume"}},
{"name":"p","projected":{"sources":[{"secret":{"name":"projected"}},{"configMap":{"name":"projected"}}]}},
{"name":"v","persistentVolumeClaim":{"claimName":"claim"}},{"name":"own","ephemeral":{}},{"name":"x","csi":{"driver":"d","nodePublishSecretRef":{"name":"csi"}}}]}}`

// fill stores a pod of node n1 that refers to objects of every kind, and what concerns the node otherwise.
func (b *bench) fill() {
	b.put(pods, "ns", "pod", podSpec)
	b.put(pods, "ns", "mirror", `,"annotations":{"kubernetes.io/config.mirror":"x"}},"spec":{"nodeName":"n1","volumes":[{"name":"s","secret":{"secretName":"stolen"}}]}}`)
	b.put(pods, "ns", "pending", `},"spec":{"volumes":[{"name":"s","secret":{"secretName":"pending"}}]}}`)
	b.put(pods, "ns", "other", `},"spec":{"nodeName":"n2","volumes":[{"name":"s","secret":{"secretName":"other"}}]}}`)
	b.put(volumes, "", "pv", `},"spec":{"claimRef":{"namespace":"ns","name":"claim"},"csi":{"driver":"d","volumeHandle":"h",
"nodeStageSecretRef":{"namespace":"storage","name":"stage"},"controllerPublishSecretRef":{"namespace":"storage","name":"controller"}}}}`)
	b.put(attachments, "", "attached", `},"spec":{"nodeName":"n1"}}`)
	b.put(resourceSlices, "", "slice", `},"spec":{"nodeName":"n1"}}`)
	b.put(certificates, "ns", "request", `},"spec":{"nodeName":"n1"}}`)
}

// A node may do what kube-apiserver's node authorizer lets it do, and nothing else.
func TestRules(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.fill()
	b.run()
	b.eventually("n1", "/api/v1/namespaces/ns/pods/pod", authz.Allow)
	for _, f := range []string{"/api/v1/persistentvolumes/pv", "/apis/storage.k8s.io/v1/volumeattachments/attached", "/apis/resource.k8s.io/v1/resourceslices/slice",
		"/apis/certificates.k8s.io/v1/namespaces/ns/podcertificaterequests/request"} {
		b.eventually("n1", f, authz.Allow)
	}
	const ns = "/api/v1/namespaces/ns/"
	at := "?fieldSelector=" + url.QueryEscape("spec.nodeName=n1")
	for line, want := range map[string]bool{
		"GET " + ns + "secrets/volume": true, "GET " + ns + "secrets/env": true, "GET " + ns + "secrets/pull": true, "GET " + ns + "secrets/init": true,
		"GET " + ns + "secrets/projected": true, "GET " + ns + "secrets/csi": true, "GET " + ns + "secrets/other": false, "GET " + ns + "secrets/stolen": false,
		"GET " + ns + "secrets/pending": false, "GET " + ns + "secrets": false, "GET /api/v1/secrets": false, "GET /api/v1/namespaces/x/secrets/volume": false,
		"GET " + ns + "secrets?fieldSelector=metadata.name%3Dvolume": true, "GET " + ns + "secrets?watch=1&fieldSelector=metadata.name%3Dvolume": true,
		"GET /api/v1/secrets?fieldSelector=metadata.name%3Dvolume": false, "PUT " + ns + "secrets/volume": false, "DELETE " + ns + "secrets/volume": false,
		"GET /api/v1/namespaces/storage/secrets/stage": true, "GET /api/v1/namespaces/storage/secrets/controller": false,
		"GET " + ns + "configmaps/volume": true, "GET " + ns + "configmaps/env": true, "GET " + ns + "configmaps/init": true, "GET " + ns + "configmaps/projected": true,
		"GET " + ns + "configmaps/other": false, "POST " + ns + "configmaps": false,
		"GET " + ns + "persistentvolumeclaims/claim": true, "GET " + ns + "persistentvolumeclaims/pod-own": true, "GET " + ns + "persistentvolumeclaims/other": false,
		"PATCH " + ns + "persistentvolumeclaims/claim/status": true, "PATCH " + ns + "persistentvolumeclaims/other/status": false,
		"GET " + ns + "persistentvolumeclaims/claim/status": false, "PUT " + ns + "persistentvolumeclaims/claim": false,
		"GET /api/v1/persistentvolumes/pv": true, "GET /api/v1/persistentvolumes": false, "GET /api/v1/persistentvolumes/other": false,
		"GET " + ns + "persistentvolumes/pv":    false,
		"GET " + ns + "serviceaccounts/account": true, "GET " + ns + "serviceaccounts/other": false, "GET " + ns + "serviceaccounts": false,
		"POST " + ns + "serviceaccounts/account/token": true, "POST " + ns + "serviceaccounts/other/token": false, "POST " + ns + "serviceaccounts": false,
		"GET /api/v1/pods" + at: true, "GET " + ns + "pods" + at: true, "GET /api/v1/pods?watch=1&" + at[1:]: true, "GET /api/v1/pods": false,
		"GET /api/v1/watch/pods" + at:                                                      false,
		"GET /api/v1/pods?fieldSelector=spec.nodeName%21%3Dn1":                             false,
		"GET /api/v1/pods?fieldSelector=spec.nodeName%3Dn2":                                false,
		"GET /api/v1/pods?fieldSelector=&" + at[1:]:                                        false,
		"GET " + ns + "pods/pod":                                                           true,
		"GET " + ns + "pods/other":                                                         false,
		"GET " + ns + "pods/pod/log":                                                       false,
		"GET " + ns + "pods?watch=1&fieldSelector=metadata.name%3Dpod":                     true,
		"GET " + ns + "pods?watch=1&fieldSelector=metadata.name%3Dother":                   false,
		"POST " + ns + "pods":                                                              true, // admission: mirror pods
		"DELETE " + ns + "pods/other":                                                      true, // admission: pods of the node
		"PATCH " + ns + "pods/other/status":                                                true,
		"POST " + ns + "pods/other/eviction":                                               true,
		"PATCH " + ns + "pods/pod":                                                         false,
		"POST " + ns + "pods/pod/exec":                                                     false,
		"DELETE " + ns + "pods":                                                            false,
		"GET /api/v1/nodes/n1":                                                             true,
		"GET /api/v1/nodes/n2":                                                             false,
		"GET /api/v1/nodes":                                                                false,
		"GET /api/v1/nodes?fieldSelector=metadata.name%3Dn1":                               true,
		"POST /api/v1/nodes":                                                               true,
		"PATCH /api/v1/nodes/n1/status":                                                    true,
		"DELETE /api/v1/nodes/n1":                                                          false,
		"GET /api/v1/nodes/n1/proxy":                                                       false,
		"PUT /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1":            true,
		"PUT /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n2":            false,
		"POST /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases":              true,
		"PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/n1":                false,
		"GET /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases":               false,
		"GET /apis/storage.k8s.io/v1/csinodes/n1":                                          true,
		"GET /apis/storage.k8s.io/v1/csinodes/n2":                                          false,
		"POST /apis/storage.k8s.io/v1/csinodes":                                            true,
		"PATCH /apis/storage.k8s.io/v1/csinodes/n1/status":                                 false,
		"GET /apis/storage.k8s.io/v1/volumeattachments/attached":                           true,
		"GET /apis/storage.k8s.io/v1/volumeattachments":                                    false,
		"GET /apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/device":                 true,
		"GET /apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/other":                  false,
		"DELETE /apis/resource.k8s.io/v1/resourceslices/slice":                             true,
		"DELETE /apis/resource.k8s.io/v1/resourceslices/other":                             false,
		"GET /apis/resource.k8s.io/v1/resourceslices" + at:                                 true,
		"DELETE /apis/resource.k8s.io/v1/resourceslices" + at:                              true,
		"GET /apis/resource.k8s.io/v1/resourceslices":                                      false,
		"POST /apis/resource.k8s.io/v1/resourceslices":                                     true,
		"GET /apis/certificates.k8s.io/v1/podcertificaterequests" + at:                     true,
		"GET /apis/certificates.k8s.io/v1/podcertificaterequests":                          false,
		"DELETE /apis/certificates.k8s.io/v1/namespaces/ns/podcertificaterequests/request": false,
		"GET /api/v1/services":                                                             true, // the role of nodes
		"GET /apis/apps/v1/deployments":                                                    false,
	} {
		method, target, _ := strings.Cut(line, " ")
		decision, reason, err := b.as("n1", method, target)
		if (decision == authz.Allow) != want || err != nil {
			t.Errorf("%s: got %v %q %v, want allowed %v", line, decision, reason, err, want)
		}
		if decision, _, err := b.as("n3", method, target); decision == authz.Allow && strings.Contains(target, "ns/secrets") || err != nil {
			t.Errorf("%s of a node without pods: %v %v", line, decision, err)
		}
	}
	if decision, reason, _ := b.as("", http.MethodGet, ns+"secrets/volume"); decision != authz.NoOpinion || !strings.Contains(reason, "unknown node") {
		t.Errorf("a node without a name: %v %q", decision, reason)
	}
	act := &resource.Action{User: &resource.User{Name: "system:node:n1"}, Verb: "get", IsResource: true, Version: "v1", Resource: "nodes", Name: "n1"}
	if decision, _, _ := b.Authorize(t.Context(), act); decision != authz.NoOpinion {
		t.Errorf("a user outside the group of nodes: %v", decision)
	}
}

// A right ends with the pod that gave it, and one that two pods gave with the second.
func TestRightsEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.fill()
	b.put(pods, "ns", "second", `},"spec":{"nodeName":"n1","volumes":[{"name":"s","secret":{"secretName":"volume"}}]}}`)
	b.run()
	secret, staged := "/api/v1/namespaces/ns/secrets/volume", "/api/v1/namespaces/storage/secrets/stage"
	for _, name := range []string{"pod", "second"} {
		b.eventually("n1", "/api/v1/namespaces/ns/pods/"+name, authz.Allow)
	}
	b.eventually("n1", staged, authz.Allow)
	remove := func(k kind, namespace, name string) {
		t.Helper()
		if _, err := b.store(k).Delete(t.Context(), resource.Key{Namespace: namespace, Name: name}, nil); err != nil {
			t.Fatal(err)
		}
	}
	remove(pods, "ns", "pod")
	b.eventually("n1", "/api/v1/namespaces/ns/secrets/env", authz.NoOpinion)
	b.eventually("n1", staged, authz.NoOpinion)
	b.eventually("n1", secret, authz.Allow)
	remove(pods, "ns", "second")
	b.eventually("n1", secret, authz.NoOpinion)
	remove(attachments, "", "attached")
	b.eventually("n1", "/apis/storage.k8s.io/v1/volumeattachments/attached", authz.NoOpinion)
	remove(volumes, "", "pv")
	b.eventually("n1", "/api/v1/persistentvolumes/pv", authz.NoOpinion)
	for deadline := time.Now().Add(await.Patience()); ; time.Sleep(time.Millisecond) {
		b.graph.mu.RLock()
		left := fmt.Sprint(len(b.graph.uses), len(b.graph.bySecret), len(b.graph.volumes))
		b.graph.mu.RUnlock()
		if left == "1 0 0" { // what pod other of node n2 refers to
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left in the graph: %s", left)
		}
	}
}

// Before the pods are known a node is told to come again, unless it needs none of them.
func TestBeforePodsAreKnown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if decision, _, err := b.as("n1", http.MethodGet, "/api/v1/namespaces/ns/secrets/volume"); decision == authz.Allow || !apierrors.IsServiceUnavailable(err) {
		t.Errorf("got %v %v", decision, err)
	}
	if decision, _, err := b.as("n1", http.MethodGet, "/api/v1/nodes/n1"); decision != authz.Allow || err != nil {
		t.Errorf("got %v %v", decision, err)
	}
}
