package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// cleanLimit is how long cleaning up may take.
const cleanLimit = time.Minute

// Pauses between two attempts: where the time is measured, and where it is not.
const (
	pollFast = 500 * time.Microsecond
	pollSlow = 20 * time.Millisecond
)

// makePlace creates the namespace and the definition of custom resources.
func (r *runner) makePlace(ctx context.Context) error {
	body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"%s"}}`, r.namespace)
	r.hasNamespace = true // without an answer, too, it may be there
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

// retryWhileStarting repeats an attempt that fails because a server has just started, or
// something new is not known everywhere yet.
func retryWhileStarting(ctx context.Context, pause time.Duration, try func() error) error {
	for end := time.Now().Add(lostAfter); ; {
		err := try()
		if !isStatus(err, 404) && !isStatus(err, 403) && !isStatus(err, 503) || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// createDefinition creates a definition and remembers to delete it.
func (r *runner) createDefinition(ctx context.Context, client int, group string, body []byte) error {
	_, err := r.target.discard(ctx, client, request{method: "POST", path: definitionsPath, contentType: jsonType, body: body})
	if refused := new(statusError); errors.As(err, &refused) {
		return fmt.Errorf("create definition: %w", err)
	}
	// Without an answer, too, it may be there.
	r.mu.Lock()
	r.definitions = append(r.definitions, definitionName(group))
	r.mu.Unlock()
	if err != nil {
		return fmt.Errorf("create definition: %w", err)
	}
	return nil
}

// clean deletes what was made, and waits until it is gone.
func (r *runner) clean(ctx context.Context) error {
	if r.o.keep {
		r.progress.say("kept: namespace %s, %d definitions in groups %s and below", r.namespace, len(r.definitions), r.group)
		return nil
	}
	r.progress.say("deleting what was created")
	ctx, cancel := context.WithTimeoutCause(ctx, cleanLimit, fmt.Errorf("it took longer than %v", cleanLimit))
	defer cancel()
	began := time.Now()
	var failures []error
	if r.etcd != nil {
		failures = append(failures, r.etcd.clear(ctx))
	}
	refused := make([]error, len(r.definitions)) // one that stays keeps no other from going
	_, err := drive(ctx, r.o.workers, bound{len(r.definitions), cleanLimit}, nil, func(ctx context.Context, worker, i int) (int64, error) {
		refused[i] = r.remove(ctx, worker, definitionsPath+"/"+r.definitions[i])
		return 0, nil
	})
	failures = append(append(failures, err), refused...)
	if r.hasNamespace {
		failures = append(failures, r.remove(ctx, 0, "/api/v1/namespaces/"+r.namespace))
	}
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("delete what was created (namespace %s, definitions in groups %s and below): %w", r.namespace, r.group, err)
	}
	r.progress.say("all is deleted, which took %.1f s", time.Since(began).Seconds())
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
