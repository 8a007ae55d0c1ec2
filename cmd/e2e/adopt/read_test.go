package adopt

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"portico/cmd/e2e"
	"portico/resource/identity"
)

// contents are all objects of a server, by resource, namespace and name.
type contents map[string]object

// readAll reads all objects of every resource that can be listed.
func readAll(t *testing.T, cfg *rest.Config) contents {
	t.Helper()
	lists, err := discovery.NewDiscoveryClientForConfigOrDie(cfg).ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	client, all := e2e.DynamicClient(t, cfg), contents{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "update") || strings.Contains(r.Name, "/") || gv.Group == "events.k8s.io" {
				continue
			}
			gvr := gv.WithResource(r.Name)
			found, err := client.Resource(gvr).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Errorf("list %s: %v", gvr, err)
				continue
			}
			for i := range found.Items {
				o := object{gvr, &found.Items[i]}
				all[fmt.Sprintf("%s %s/%s", gvr.GroupResource(), o.GetNamespace(), o.GetName())] = o
			}
		}
	}
	return all
}

// in returns the client of the object.
func (o object) in(client dynamic.Interface) dynamic.ResourceInterface {
	if o.GetNamespace() == "" {
		return client.Resource(o.GroupVersionResource)
	}
	return client.Resource(o.GroupVersionResource).Namespace(o.GetNamespace())
}

// mark is the annotation that update sets.
const mark = "adopted.example.com/by"

// updateAll sets the annotation of every object by PUT, in several requests at a time. Those with the
// addresses of servers are left out.
func (all contents) updateAll(t *testing.T, cfg *rest.Config, value string) {
	t.Helper()
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	client := e2e.DynamicClient(t, cfg)
	var running sync.WaitGroup
	slots := make(chan struct{}, 8)
	for name, o := range all {
		// The addresses of servers are loopback ones, which are refused in requests; their Leases end.
		if ofServers(o) || o.GetLabels()[identity.Label] != "" {
			continue
		}
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := o.update(t.Context(), client, value); err != nil {
				t.Errorf("update %s: %v", name, err)
			}
		})
	}
	running.Wait()
}

func (o object) update(ctx context.Context, client dynamic.Interface, value string) error {
	now, err := o.in(client).Get(ctx, o.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	annotations := now.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[mark] = value
	now.SetAnnotations(annotations)
	_, err = o.in(client).Update(ctx, now, metav1.UpdateOptions{})
	return err
}

// ofServers reports whether an object has the addresses of servers.
func ofServers(o object) bool {
	return o.GetNamespace() == "default" && o.GetName() == "kubernetes" && slices.Contains([]string{"endpoints", "endpointslices", "services"}, o.Resource)
}

// same reports whether two objects have the same content, but for what every write changes.
func same(a, b object) bool { return plain(a) == plain(b) }

// plain returns the object as text without what every write changes.
func plain(o object) string {
	u := o.DeepCopy()
	u.SetResourceVersion("")
	u.SetManagedFields(nil)
	annotations := maps.Clone(u.GetAnnotations())
	delete(annotations, mark)
	if len(annotations) == 0 {
		annotations = nil
	}
	u.SetAnnotations(annotations)
	text, err := json.Marshal(u.Object)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
