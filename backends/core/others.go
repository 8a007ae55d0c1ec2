package core

//lint:file-ignore ST1005 The errors are messages of conditions, in the words of kube-controller-manager.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"portico/apiservice"
	"portico/backends/process"
	"portico/discovery"
	"portico/resource"
	"portico/resource/client"
	"portico/resource/rest"
)

// newGatewayClient returns a client of the gateway; nil if there is no transport.
func newGatewayClient(url string, transport http.RoundTripper) *client.Client {
	if transport == nil {
		return nil
	}
	return client.New(client.Config{BaseURL: url, Transport: aggregatedDiscovery{transport}, UserAgent: process.UserAgent(name)})
}

// aggregatedDiscovery requests the aggregated form of /apis.
type aggregatedDiscovery struct{ next http.RoundTripper }

func (a aggregatedDiscovery) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == "/apis" {
		r = r.Clone(r.Context())
		r.Header.Set("Accept", discovery.AggregatedJSON)
	}
	return a.next.RoundTrip(r)
}

// others returns the namespaced resources of other servers that can be listed and deleted. A
// group/version with a server that is down counts with its last discovery. One that was never
// discovered is unknown in r, as it may have any objects, unless no server has it.
func (d *drainer) others(ctx context.Context, namespace string, r *result) (out []target) {
	list := &apidiscovery.APIGroupDiscoveryList{}
	if err := readJSON(ctx, d.gateway, "/apis", list); err != nil {
		r.discovery = fmt.Errorf("Discovery failed: %w", err)
		return nil
	}
	own := map[string]bool{}
	for _, k := range d.core.served {
		own[k.Group] = true
	}
	for _, g := range list.Items {
		if own[g.Name] {
			continue
		}
		// A version with a server that is down is of use for what the others do not have.
		slices.SortStableFunc(g.Versions, func(a, b apidiscovery.APIVersionDiscovery) int { return cmp.Compare(stale(a), stale(b)) })
		seen := map[string]bool{}
		for _, v := range g.Versions {
			if stale(v) == 1 && len(v.Resources) == 0 && !d.absent(ctx, g.Name, v.Version) {
				r.unknown = append(r.unknown, emptied{api: apiservice.Name(g.Name, v.Version), resource: schema.GroupResource{Group: g.Name}, err: errors.New(g.Name + "/" + v.Version)})
			}
			for _, res := range v.Resources {
				if seen[res.Resource] || res.Scope != apidiscovery.ScopeNamespace || !slices.Contains(res.Verbs, "list") || !slices.Contains(res.Verbs, "delete") {
					continue
				}
				seen[res.Resource] = true
				info := &resource.Info{Group: g.Name, Versions: []string{v.Version}, Resource: res.Resource, Namespaced: true}
				out = append(out, d.foreign(info, namespace, slices.Contains(res.Verbs, "deletecollection")))
			}
		}
	}
	return out
}

func stale(v apidiscovery.APIVersionDiscovery) int {
	if v.Freshness == apidiscovery.DiscoveryFreshnessStale {
		return 1
	}
	return 0
}

// foreign returns a resource of another server. collection: deletecollection is supported.
func (d *drainer) foreign(info *resource.Info, namespace string, collection bool) target {
	path := client.Path(info, namespace, "")
	t := target{
		Info: info, store: d.gateway.Reader(info), api: apiservice.Name(info.Group, info.Versions[0]),
		delete: func(ctx context.Context, o *resource.Object) error { return d.sendDelete(ctx, path+"/"+o.Name, o.UID) },
	}
	t.count = func(ctx context.Context, namespace string) (left []*resource.Object) {
		of := schema.GroupVersionResource{Group: info.Group, Version: info.Versions[0], Resource: info.Resource}
		list, err := d.metadata.Resource(of).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil // the list with the objects has failed as well, and says why
		}
		for i := range list.Items {
			left = append(left, &resource.Object{Header: resource.Header{Finalizers: list.Items[i].Finalizers}})
		}
		return left
	}
	if collection {
		t.deleteAll = func(ctx context.Context) error { return d.sendDelete(ctx, path, "") }
	}
	return t
}

// absent reports whether a group/version without discovery is registered and no server has
// it, so that it has no objects.
func (d *drainer) absent(ctx context.Context, group, version string) bool {
	res, err := d.gateway.Do(ctx, http.MethodGet, "/apis/"+group+"/"+version, nil, nil)
	if err == nil {
		_ = res.Body.Close()
	}
	return apierrors.HasStatusCause(err, discovery.CauseNotServed)
}

// abandoned returns whether an APIService has the namespace of r in its AbandonAnnotation.
// APIServices are read only if the server of one fails. While they cannot be read, nothing is
// abandoned.
func (d *drainer) abandoned(ctx context.Context, r *result) func(api string) bool {
	failed := slices.ContainsFunc(r.resources, func(e emptied) bool { return e.err != nil && e.api != "" })
	if d.gateway == nil || ctx.Err() != nil || !failed && len(r.unknown) == 0 {
		return func(string) bool { return false }
	}
	var services metav1.PartialObjectMetadataList
	if err := readJSON(ctx, d.gateway, "/apis/apiregistration.k8s.io/v1/apiservices", &services); err != nil {
		d.log.Warn("reading APIServices failed", "namespace", r.namespace, "err", err)
	}
	return func(api string) bool {
		return slices.ContainsFunc(services.Items, func(a metav1.PartialObjectMetadata) bool {
			return a.Name == api && apiservice.Abandons(a.Annotations[apiservice.AbandonAnnotation], r.namespace)
		})
	}
}

// reportAbandoned logs what a namespace leaves behind that goes, and records it as an Event.
func (d *drainer) reportAbandoned(ctx context.Context, uid string, r *result) error {
	apis := servicesOf(r.abandoned)
	left := make([]string, len(r.abandoned))
	for i, e := range r.abandoned {
		if left[i] = e.resource.String(); e.resource.Resource == "" {
			left[i] = "everything in " + e.err.Error()
		}
	}
	slices.Sort(left)
	message := fmt.Sprintf("The namespace went without the deletion of %s: APIService %s has the annotation %s, and its server failed",
		named(left), named(apis), apiservice.AbandonAnnotation)
	d.log.Warn("objects of a namespace were abandoned", "namespace", r.namespace, "uid", uid, "apiservices", apis, "resources", left)
	return d.event(ctx, r.namespace, uid, uid, "ContentAbandoned", cut(message))
}

// reportWaiting records an Event, once for each namespace, if its deletion waits for what does not do its part: a server, a
// webhook, or discovery. Its conditions follow what becomes of that.
func (d *drainer) reportWaiting(ctx context.Context, uid string, r *result) {
	for _, c := range r.conditions() {
		failed := c.Type == corev1.NamespaceDeletionContentFailure || c.Type == corev1.NamespaceDeletionDiscoveryFailure
		if !failed || c.Status != corev1.ConditionTrue {
			continue
		}
		message := c.Message
		if over := len(message) - maxErrorText; over > 0 { // the end says what to do
			message = strings.ToValidUTF8("..."+message[over:], "")
		}
		if err := d.event(ctx, r.namespace, uid, uid+".waits", "DeletionWaits", message); err != nil && ctx.Err() == nil {
			d.log.Warn("the event of a namespace that waits was not stored", "namespace", r.namespace, "err", err)
		}
		return
	}
}

// event stores a Warning Event on a namespace, unless there is one of that name.
func (d *drainer) event(ctx context.Context, namespace, uid, name, reason, message string) error {
	row, now := d.core.find("", "events"), rest.Now()
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: namespace + "." + name},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: namespace, UID: types.UID(uid)},
		Reason:         reason, Message: message, Type: corev1.EventTypeWarning,
		Source: corev1.EventSource{Component: "namespace-controller"}, ReportingController: "namespace-controller",
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	rest.FillSystemMetadata(event, false)
	o, err := row.Codec.EncodeStored(event)
	if err != nil {
		return err
	}
	_, err = row.Store.Create(ctx, resource.Key{Namespace: event.Namespace, Name: event.Name}, o, row.TTL(event))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create event %s: %w", event.Name, err)
	}
	return nil
}

// controllerUser returns the user that deletes the objects of the core server. Its requests
// pass the same admission as those of other clients.
func controllerUser() *resource.User {
	return &resource.User{Name: "system:serviceaccount:kube-system:namespace-controller", Groups: []string{resource.GroupMasters}}
}

// readJSON decodes a document of the gateway.
func readJSON(ctx context.Context, gateway *client.Client, path string, into any) error {
	document, err := readDocument(ctx, gateway, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(document, into); err != nil {
		return fmt.Errorf("read %s: %w", strings.TrimPrefix(path, "/"), err)
	}
	return nil
}

// readDocument reads a document of the gateway, up to maxDocument bytes of it.
func readDocument(ctx context.Context, gateway *client.Client, path string) ([]byte, error) {
	res, err := gateway.Do(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	document, err := io.ReadAll(io.LimitReader(res.Body, maxDocument))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", strings.TrimPrefix(path, "/"), err)
	}
	return document, nil
}
