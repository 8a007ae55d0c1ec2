package quota

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"portico/resource"
	"portico/resource/client"
	"portico/resource/loop"
)

// followBackoff grows slowly and has a low maximum, because the server of the quotas usually
// starts together with this process.
var followBackoff = loop.Backoff{Initial: 20 * time.Millisecond, Factor: 1.3, Max: 2 * time.Second}

// Remote is the quotas of another server, followed over HTTP while Run runs. While that server
// is away the last state says which writes are charged, and those fail. Safe for concurrent use.
type Remote struct {
	client *client.Client
	store  resource.Reader
	log    *slog.Logger
	// known has the quotas by namespace; nil before the first read.
	known atomic.Pointer[map[string][]*corev1.ResourceQuota]
}

// NewRemote returns the quotas that a client reads.
func NewRemote(c *client.Client, log *slog.Logger) *Remote {
	info := &resource.Info{Versions: []string{"v1"}, Resource: "resourcequotas", Kind: "ResourceQuota", Namespaced: true}
	return &Remote{client: c, store: c.Reader(info), log: log}
}

// Run follows the quotas until ctx ends, and returns its error.
func (r *Remote) Run(ctx context.Context) error {
	return loop.Follow(ctx, r.store, loop.FollowOptions{Logger: r.log, Backoff: followBackoff}, func(s loop.Snapshot) {
		known := map[string][]*corev1.ResourceQuota{}
		for _, o := range s.Items {
			q, err := decode(o)
			if err != nil {
				r.log.Error("a resource quota cannot be read and does not limit custom resources", "object", o.Key(), "err", err)
				continue
			}
			known[o.Namespace] = append(known[o.Namespace], q)
		}
		r.known.Store(&known)
	})
}

// Ready returns nil once the quotas were read, and for a nil Remote. It is for health checks;
// writes read them themselves.
func (r *Remote) Ready() error {
	if r != nil && r.known.Load() == nil {
		return errors.New("the resource quotas have not been read yet")
	}
	return nil
}

// List implements Quotas.
func (r *Remote) List(ctx context.Context, namespace string, latest bool) ([]*corev1.ResourceQuota, error) {
	if known := r.known.Load(); known != nil && !latest {
		return (*known)[namespace], nil
	}
	list, err := r.store.List(ctx, resource.ListOptions{Namespace: namespace})
	if err != nil {
		return nil, err
	}
	out := make([]*corev1.ResourceQuota, 0, len(list.Items))
	for _, o := range list.Items {
		q, err := decode(o)
		if err != nil {
			return nil, err
		}
		out = append(out, q)
	}
	return out, nil
}

// UpdateStatus implements Quotas.
func (r *Remote) UpdateStatus(ctx context.Context, q *corev1.ResourceQuota) error {
	q = q.DeepCopy()
	q.APIVersion, q.Kind = "v1", "ResourceQuota"
	body, err := json.Marshal(q)
	if err != nil {
		return err
	}
	res, err := r.client.Do(ctx, http.MethodPut, client.Path(r.store.Info(), q.Namespace, q.Name)+"/status", nil, body)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

func decode(o *resource.Object) (*corev1.ResourceQuota, error) {
	q := &corev1.ResourceQuota{}
	if err := json.Unmarshal(o.Data, q); err != nil {
		return nil, fmt.Errorf("decode resource quota %s: %w", o.Key(), err)
	}
	return q, nil
}
