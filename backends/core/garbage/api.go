package garbage

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"portico/resource"
	"portico/resource/metastream"
)

const (
	// requestTimeout bounds one request.
	requestTimeout = 15 * time.Second
	// resetInterval is the shortest time between two resets of the RESTMapper.
	resetInterval = 5 * time.Second
)

// client is an API of servers behind one endpoint.
type client struct {
	metadata metadata.Interface
	mapper   meta.RESTMapper

	mu    sync.Mutex
	reset time.Time // of mapper
}

// NewAPI returns the API of the servers behind one endpoint. mapper finds the resources of
// kinds.
func NewAPI(c metadata.Interface, mapper meta.RESTMapper) API {
	return &client{metadata: c, mapper: mapper}
}

// resource returns the resource of an object. namespace is that of the reference, and "" if
// the kind has no namespaces.
func (c *client) resource(apiVersion, kind, namespace string) (metadata.ResourceInterface, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, fmt.Errorf("read apiVersion %q: %w", apiVersion, err)
	}
	gk := gv.WithKind(kind).GroupKind()
	mapping, err := c.mapper.RESTMapping(gk)
	if err != nil {
		return nil, fmt.Errorf("find the resource of kind %s: %w", gk, err)
	}
	r := c.metadata.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return r, nil
	}
	if namespace == "" {
		return nil, ErrNamespaced
	}
	return r.Namespace(namespace), nil
}

// checked returns the error of a request. A 404 that is no Status may say that the path is not
// served, as that of a version that was withdrawn: then the collection is not found either, the
// error does not count as NotFound, and the mapper, which is stale, is reset.
func (c *client) checked(ctx context.Context, r metadata.ResourceInterface, err error) error {
	if !apierrors.IsNotFound(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return err
	}
	switch _, listed := r.List(ctx, metav1.ListOptions{Limit: 1}); {
	case listed == nil:
		return err
	case !apierrors.IsNotFound(listed):
		return listed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.reset) > resetInterval {
		c.reset = time.Now()
		meta.MaybeResetRESTMapper(c.mapper)
	}
	return errors.New("the version of the resource is not served")
}

// Get implements API.
func (c *client) Get(ctx context.Context, ref Ref) (*resource.Header, error) {
	r, err := c.resource(ref.APIVersion, ref.Kind, ref.Namespace)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	obj, err := r.Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return nil, c.checked(ctx, r, err)
	}
	obj.APIVersion, obj.Kind = ref.APIVersion, ref.Kind // those of the response are PartialObjectMetadata
	return metastream.Header(obj)
}

// Delete implements API.
func (c *client) Delete(ctx context.Context, h *resource.Header, propagation metav1.DeletionPropagation) error {
	r, err := c.resource(h.APIVersion, h.Kind, h.Namespace)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	uid, revision := types.UID(h.UID), strconv.FormatInt(h.Revision, 10)
	return c.checked(ctx, r, r.Delete(ctx, h.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &revision}, PropagationPolicy: &propagation,
	}))
}

// Patch implements API.
func (c *client) Patch(ctx context.Context, h *resource.Header, patch []byte) error {
	r, err := c.resource(h.APIVersion, h.Kind, h.Namespace)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err = r.Patch(ctx, h.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return c.checked(ctx, r, err)
}
