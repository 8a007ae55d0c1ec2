package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"portico/resource"
	"portico/resource/authn"
	"portico/resource/client"
)

// lookupTokenSecret returns the Secret of a token without expiry, as it is stored now: while the
// core server is away such tokens are not accepted. The day of the use is recorded in a label.
func (c *coreClient) lookupTokenSecret(ctx context.Context, namespace, name string) (*authn.TokenSecret, error) {
	key := resource.Key{Namespace: namespace, Name: name}
	store := c.store("", "secrets", "Secret")
	o, err := store.Get(ctx, key, resource.At{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look up secret %s: %w", key, err)
	case o.Terminating():
		return nil, nil
	}
	var secret struct {
		Data struct {
			Token []byte `json:"token"`
		} `json:"data"`
	}
	if err := json.Unmarshal(o.Data, &secret); err != nil {
		return nil, fmt.Errorf("read secret %s: %w", key, err)
	}
	return &authn.TokenSecret{
		Token: secret.Data.Token, InvalidSince: o.Labels.Get(authn.LabelInvalidSince),
		Listed: func(ctx context.Context, account string) bool { return c.lists(ctx, namespace, account, name) },
		Used:   func(ctx context.Context) { c.recordUse(ctx, store, o) },
	}, nil
}

// lists reports whether a service account lists a Secret; false if it cannot be read.
func (c *coreClient) lists(ctx context.Context, namespace, account, secret string) bool {
	o, err := c.store("", "serviceaccounts", "ServiceAccount").Get(ctx, resource.Key{Namespace: namespace, Name: account}, resource.At{Freshness: resource.Any})
	var sa corev1.ServiceAccount
	if err != nil || json.Unmarshal(o.Data, &sa) != nil {
		return false
	}
	return slices.ContainsFunc(sa.Secrets, func(r corev1.ObjectReference) bool { return r.Name == secret })
}

// recordUse sets the label of the day on which the token of a Secret was used last, unless it is
// today or, by another clock, tomorrow. Failures are logged: the token is good.
func (c *coreClient) recordUse(ctx context.Context, store resource.Reader, o *resource.Object) {
	now := time.Now().UTC()
	today, last := now.Format(authn.DayFormat), o.Labels.Get(authn.LabelLastUsed)
	if last == today || last == now.AddDate(0, 0, 1).Format(authn.DayFormat) {
		return
	}
	patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{ // strings cannot fail
		"uid": o.UID, "labels": map[string]string{authn.LabelLastUsed: today},
	}})
	path := client.Path(store.Info(), o.Namespace, o.Name)
	req, err := http.NewRequestWithContext(ctx, http.MethodPatch, loopbackURL+path, bytes.NewReader(patch))
	if err != nil {
		return // the names are those of an object
	}
	req.Header.Set("Content-Type", string(types.MergePatchType))
	req.Header.Set("User-Agent", userAgent)
	res, err := c.RoundTrip(req)
	if err == nil {
		_ = res.Body.Close()
		if res.StatusCode < http.StatusMultipleChoices {
			return
		}
		err = fmt.Errorf("status %d", res.StatusCode)
	}
	c.log.WarnContext(ctx, "cannot record the use of a service account token", "namespace", o.Namespace, "secret", o.Name, "err", err)
}
