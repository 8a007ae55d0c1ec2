package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"portico/resource"
	"portico/resource/authn"
	"portico/resource/loop"
)

// followTokens follows what tokens depend on until ctx ends: service accounts as a whole, the
// changes of pods, Secrets and nodes, and Secrets of bootstrap tokens.
func (c *coreClient) followTokens(ctx context.Context) error {
	run := []func(context.Context) error{c.followAccounts}
	if c.bootstrap {
		run = append(run, c.followBootstrapSecrets)
	}
	if c.tokens != nil {
		for kind, res := range map[string]string{"Pod": "pods", "Secret": "secrets", "Node": "nodes"} {
			run = append(run, func(ctx context.Context) error {
				return loop.Retry(ctx, loop.Backoff{Max: maxFollowPause}, func(ctx context.Context) error { return c.reportChanges(ctx, res, kind) })
			})
		}
	}
	return loop.Together(ctx, run...)
}

// followAccounts follows the service accounts.
func (c *coreClient) followAccounts(ctx context.Context) error {
	return loop.Follow(ctx, c.store("", "serviceaccounts", "ServiceAccount"), c.options(), func(s loop.Snapshot) {
		old := c.serviceAccounts.Swap(&s)
		switch {
		case c.tokens == nil:
		case old == nil:
			c.tokens.Follow("ServiceAccount", true)
		default:
			for _, o := range s.Removed(*old) {
				c.tokens.Changed(authn.Object{Kind: "ServiceAccount", Namespace: o.Namespace, Name: o.Name})
			}
		}
	})
}

// reportChanges reports the changes of one kind that tokens may depend on, until the watch ends.
// It keeps no objects: tokens look up what they depend on.
func (c *coreClient) reportChanges(ctx context.Context, res, kind string) error {
	w, err := c.store("", res, kind).Watch(ctx, resource.WatchOptions{})
	if err != nil {
		return err
	}
	defer w.Close()
	c.tokens.Follow(kind, true)
	defer c.tokens.Follow(kind, false)
	for {
		events, err := w.Next(ctx)
		if err != nil {
			return err
		}
		for _, e := range events {
			// Of Secrets the content counts, of others only their deletion.
			if o := e.Object; o != nil && (kind == "Secret" || e.Type == resource.Deleted || o.Terminating()) {
				c.tokens.Changed(authn.Object{Kind: kind, Namespace: o.Namespace, Name: o.Name})
			}
		}
	}
}

// followBootstrapSecrets follows the Secrets of bootstrap tokens.
func (c *coreClient) followBootstrapSecrets(ctx context.Context) error {
	opts := c.options()
	opts.Namespace, opts.Selector.Fields = metav1.NamespaceSystem, fields.OneTermEqualSelector("type", authn.BootstrapSecretType)
	return loop.Follow(ctx, c.store("", "secrets", "Secret"), opts, func(s loop.Snapshot) { c.bootstrapSecrets.Store(&s) })
}

// lookupBootstrapSecret returns the Secret of a bootstrap token as followed; nil if there is none.
func (c *coreClient) lookupBootstrapSecret(_ context.Context, name string) (*authn.BootstrapSecret, error) {
	s := c.bootstrapSecrets.Load()
	if s == nil {
		return nil, fmt.Errorf("look up secret %s: the secrets of bootstrap tokens are not known yet", name)
	}
	o := s.Get(resource.Key{Namespace: metav1.NamespaceSystem, Name: name})
	if o == nil {
		return nil, nil
	}
	out := &authn.BootstrapSecret{Name: name, Terminating: o.Terminating()}
	if err := json.Unmarshal(o.Data, out); err != nil {
		return nil, fmt.Errorf("read secret %s: %w", name, err)
	}
	return out, nil
}

// lookupServiceAccount returns the uid of a service account, to check that a token's
// account still exists. The followed state may be old, so an account that is missing in it, or has
// another uid than a claimed one, is looked up in the core server.
func (c *coreClient) lookupServiceAccount(ctx context.Context, namespace, name, claimed string) (uid string, found bool, err error) {
	key := resource.Key{Namespace: namespace, Name: name}
	if s := c.serviceAccounts.Load(); s != nil {
		if o := s.Get(key); o != nil && !o.Terminating() && (claimed == "" || o.UID == claimed) {
			return o.UID, true, nil
		}
	} else if known := c.restoredAccounts.Load(); known != nil {
		if uid, ok := (*known)[namespace][name]; ok && (claimed == "" || uid == claimed) {
			return uid, true, nil
		}
	}
	o, err := c.store("", "serviceaccounts", "ServiceAccount").Get(ctx, key, resource.At{})
	switch {
	case apierrors.IsNotFound(err):
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("look up service account %s: %w", key, err)
	case o.Terminating() && time.Since(o.DeletionTime()) > deletedLeeway:
		return "", false, nil
	}
	return o.UID, true, nil
}

// deletedLeeway is how long after its deletion time a service account, a pod or a node that is still
// there keeps tokens valid.
const deletedLeeway = time.Minute

// lookupBound returns the uid of the object that a token is bound to; the last known one
// while the core server is away.
func (c *coreClient) lookupBound(ctx context.Context, kind, namespace, name string) (uid string, found bool, err error) {
	var of string
	var known *boundObjects
	switch kind {
	case "Secret":
		of, known = "secrets", &c.secrets
	case "Pod":
		of, known = "pods", &c.pods
	case "Node":
		of, known = "nodes", &c.nodes
	default:
		return "", false, nil
	}
	key := resource.Key{Namespace: namespace, Name: name}
	o, err := c.store("", of, kind).Get(ctx, key, resource.At{})
	switch {
	case apierrors.IsNotFound(err):
		known.set(key, "")
		return "", false, nil
	case err != nil:
		if uid, found = known.get(key); found {
			return uid, true, nil
		}
		return "", false, fmt.Errorf("look up %s %s: %w", of, key, err)
	case o.Terminating() && (kind == "Secret" || time.Since(o.DeletionTime()) > deletedLeeway):
		known.set(key, "")
		return "", false, nil
	}
	known.set(key, o.UID)
	return o.UID, true, nil
}
