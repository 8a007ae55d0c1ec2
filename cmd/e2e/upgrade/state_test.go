package upgrade

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"portico/cmd/e2e"
)

// state is every object that an installation serves, in every version: by the path of its list, namespace and name.
type state map[string]*unstructured.Unstructured

// listable returns the resources that store objects.
func listable(cfg *rest.Config) (all []schema.GroupVersionResource, err error) {
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	_, lists, err := client.ServerGroupsAndResources()
	failed, isPart := discovery.GroupDiscoveryFailedErrorGroups(err)
	delete(failed, away)
	if err != nil && (!isPart || len(failed) > 0) {
		return nil, err
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "create") {
				all = append(all, gv.WithResource(r.Name))
			}
		}
	}
	return all, nil
}

// read reads all objects.
func read(t *testing.T, cfg *rest.Config) (state, error) {
	resources, err := listable(cfg)
	if err != nil {
		return nil, err
	}
	client, all := e2e.DynamicClient(t, cfg), state{}
	for _, gvr := range resources {
		list, err := client.Resource(gvr).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list %v: %w", gvr, err)
		}
		for _, o := range list.Items {
			all[fmt.Sprintf("%s/%s/%s/%s/%s", gvr.Group, gvr.Version, gvr.Resource, o.GetNamespace(), o.GetName())] = &o
		}
	}
	return all, nil
}

// settled reads all objects once nothing has changed them for a while: processes write status after a start.
func settled(t *testing.T, cfg *rest.Config) (all state) {
	t.Helper()
	const quiet = 2 * time.Second
	var since time.Time
	e2e.Eventually(t, "no object changes by itself", func() error {
		now, err := read(t, cfg)
		if err != nil {
			since = time.Time{}
			return err
		}
		if since.IsZero() || !reflect.DeepEqual(now.without(periodic), all.without(periodic)) {
			all, since = now, time.Now()
		}
		if time.Since(since) < quiet {
			return errors.New("objects change")
		}
		return nil
	})
	return all
}

func (s state) without(what func(key string) bool) state {
	out := maps.Clone(s)
	maps.DeleteFunc(out, func(key string, _ *unstructured.Unstructured) bool { return what(key) })
	return out
}

// periodic reports whether the processes write an object again and again.
func periodic(key string) bool {
	return strings.HasPrefix(key, "coordination.k8s.io/v1/leases/kube-system/")
}

// expires reports whether an object is removed some time after its creation.
func expires(key string) bool {
	parts := strings.Split(key, "/")
	return slices.Contains([]string{"events", "certificatesigningrequests", "podcertificaterequests"}, parts[2])
}

// own reports whether the processes write an object by themselves, when they start and when something changes: what
// describes them, and what they bring up to date with their version.
func own(o *unstructured.Unstructured) bool {
	switch o.GetKind() {
	case "APIService", "Backend", "FlowSchema", "PriorityLevelConfiguration":
		return true
	case "Service", "Endpoints", "EndpointSlice":
		return o.GetNamespace() == metav1.NamespaceDefault && o.GetName() == "kubernetes"
	}
	return o.GetLabels()["kubernetes.io/bootstrapping"] == "rbac-defaults"
}

// compare checks that an installation of another version serves all objects as before: each has its uid, and one that
// was not written since is the same to the last field. Only what processes write by themselves may have been written.
func compare(t *testing.T, step string, before, after state) {
	t.Helper()
	same, written := 0, 0
	for _, key := range slices.Sorted(maps.Keys(before)) {
		was, is := before[key], after[key]
		switch {
		case periodic(key):
		case is == nil && expires(key):
		case is == nil:
			t.Errorf("%s: %s is gone", step, key)
		case is.GetUID() != was.GetUID() || is.GetCreationTimestamp() != was.GetCreationTimestamp():
			t.Errorf("%s: %s is another object", step, key)
		case revision(t, is) < revision(t, was):
			t.Errorf("%s: the resourceVersion of %s goes back from %s to %s", step, key, was.GetResourceVersion(), is.GetResourceVersion())
		case revision(t, is) > revision(t, was) && !own(is):
			t.Errorf("%s: %s was written: %s", step, key, difference(was, is))
		case revision(t, is) == revision(t, was) && !reflect.DeepEqual(defaulted(was).Object, defaulted(is).Object):
			t.Errorf("%s: %s differs: %s", step, key, difference(was, is))
		case revision(t, is) > revision(t, was):
			written++
		default:
			same++
		}
	}
	t.Logf("%s: of %d objects %d are as before, and %d were brought up to date", step, len(before), same, written)
}

// defaulted returns an object with the defaults that are not stored and that some version does not set.
func defaulted(o *unstructured.Unstructured) *unstructured.Unstructured {
	if _, set, _ := unstructured.NestedString(o.Object, "status", "phase"); set || o.GetKind() != "PersistentVolumeClaim" {
		return o
	}
	o = o.DeepCopy()
	_ = unstructured.SetNestedField(o.Object, "Pending", "status", "phase") // since v0.2.0; a status is an object
	return o
}

func revision(t *testing.T, o *unstructured.Unstructured) int64 {
	t.Helper()
	n, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// difference returns the fields of objects that differ.
func difference(was, is *unstructured.Unstructured) string {
	var out []string
	for _, field := range slices.Sorted(maps.Keys(mergedKeys(was.Object, is.Object))) {
		a, _ := json.Marshal(was.Object[field]) // JSON that was decoded
		b, _ := json.Marshal(is.Object[field])
		if string(a) != string(b) {
			out = append(out, fmt.Sprintf("%s was %s and is %s", field, a, b))
		}
	}
	return strings.Join(out, "; ")
}

func mergedKeys(a, b map[string]any) map[string]bool {
	out := map[string]bool{}
	for _, m := range []map[string]any{a, b} {
		for k := range m {
			out[k] = true
		}
	}
	return out
}
