package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// cleanLimit bounds the time of clean.
const cleanLimit = time.Minute

// Pauses between two attempts: where the time is measured, where it is and the attempts would take much of
// the processors meanwhile, and elsewhere.
const (
	pollFast   = 500 * time.Microsecond
	pollGently = 5 * time.Millisecond
	pollSlow   = 20 * time.Millisecond
)

// setUp creates the namespace and the CustomResourceDefinition.
func (r *runner) setUp(ctx context.Context) error {
	body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"%s"}}`, r.namespace)
	r.hasNamespace = true // it may exist even if the request fails
	err := retryWhileStarting(ctx, pollSlow, func() error {
		_, err := r.target.discard(ctx, 0, request{method: "POST", path: "/api/v1/namespaces", contentType: jsonType, body: body})
		return err
	})
	if err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	definition, err := definition(r.group)
	if err != nil {
		return err
	}
	return retryWhileStarting(ctx, pollSlow, func() error { return r.createDefinition(ctx, 0, r.group, definition) })
}

// retryWhileStarting repeats an attempt that fails with 403, 404, 429 or 503, for at most
// lostAfter: a server is starting, or a new object is not yet known everywhere.
func retryWhileStarting(ctx context.Context, pause time.Duration, try func() error) error {
	for end := time.Now().Add(lostAfter); ; {
		err := try()
		if !isStatus(err, 404) && !isStatus(err, 403) && !isStatus(err, 429) && !isStatus(err, 503) || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// createDefinition creates a definition, which clean deletes.
func (r *runner) createDefinition(ctx context.Context, client int, group string, body []byte) error {
	_, err := r.target.discard(ctx, client, request{method: "POST", path: definitionsPath, contentType: jsonType, body: body})
	if refused := new(statusError); errors.As(err, &refused) {
		return fmt.Errorf("create definition: %w", err)
	}
	// It may exist even if the request failed without an answer.
	r.mu.Lock()
	r.definitions = append(r.definitions, definitionName(group))
	r.mu.Unlock()
	if err != nil {
		return fmt.Errorf("create definition: %w", err)
	}
	return nil
}

// clean deletes the created objects and waits until they are gone.
func (r *runner) clean(ctx context.Context) error {
	if r.o.keep {
		r.progress.say("kept: namespace %s, %d definitions in groups %s and below", r.namespace, len(r.definitions), r.group)
		return nil
	}
	r.progress.say("deleting the created objects")
	ctx, cancel := context.WithTimeoutCause(ctx, cleanLimit, fmt.Errorf("not finished within %v", cleanLimit))
	defer cancel()
	began := time.Now()
	var failures []error
	if r.etcd != nil {
		failures = append(failures, r.etcd.clear(ctx))
	}
	refused := make([]error, len(r.definitions)) // a failure does not stop the others
	_, err := drive(ctx, r.o.workers, bound{len(r.definitions), cleanLimit}, nil, func(ctx context.Context, worker, i int) (int64, error) {
		refused[i] = r.remove(ctx, worker, definitionsPath+"/"+r.definitions[i])
		return 0, nil
	})
	failures = append(append(failures, err), refused...)
	if r.hasNamespace {
		failures = append(failures, r.remove(ctx, 0, "/api/v1/namespaces/"+r.namespace))
	}
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("delete the created objects (namespace %s, definitions in groups %s and below): %w", r.namespace, r.group, err)
	}
	r.progress.say("deleted after %.1f s", time.Since(began).Seconds())
	return nil
}

// remove deletes an object and waits until it is gone.
func (r *runner) remove(ctx context.Context, client int, path string) error {
	_, err := r.target.discard(ctx, client, request{method: "DELETE", path: path})
	for err == nil {
		if _, err = r.target.discard(ctx, client, request{path: path}); err != nil {
			break
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollSlow):
		}
	}
	if isStatus(err, 404) {
		return nil
	}
	return err
}
