package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/apiservice/backend"
)

// lookEvery is the pause between two looks at what is waited for.
const lookEvery = 200 * time.Millisecond

// registerWait waits until what was registered can be used.
type registerWait struct {
	gateway  *gatewayClient
	want     *registration
	out      io.Writer
	progress io.Writer
}

// run returns nil once the Backend is available and registered. Meanwhile it prints why
// it waits, as reasons decides.
func (w *registerWait) run(ctx context.Context, limit time.Duration) error {
	began := time.Now()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	said := reasons{}
	for {
		b, missing, err := w.look(ctx)
		switch {
		case err != nil:
			return err
		case missing == "":
			fmt.Fprintf(w.out, "available after %v\n", time.Since(began).Round(10*time.Millisecond))
			return w.summary(b)
		case said.worth(missing, time.Now()):
			fmt.Fprintf(w.progress, "waiting: %s\n", missing)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for backend %s: interrupted; it stays registered", w.want.name)
		case <-deadline.C:
			return fmt.Errorf("wait for backend %s: not available after %v: %s (it stays registered; %s)", w.want.name, limit, missing, w.want.advice(b, missing))
		case <-tick.C:
		}
	}
}

// sayAgainAfter is when a reason is worth saying again.
const sayAgainAfter = 5 * time.Second

// reasons are those that were said lately, and when: two that take turns are each
// said once, and again after a while.
type reasons map[string]time.Time

// worth reports whether a reason is to be said, and counts it as said if so.
func (r reasons) worth(reason string, now time.Time) bool {
	maps.DeleteFunc(r, func(_ string, said time.Time) bool { return now.Sub(said) >= sayAgainAfter })
	if _, lately := r[reason]; lately {
		return false
	}
	r[reason] = now
	return true
}

// advice says what to do about a server that is not available because of what is missing.
func (r *registration) advice(b *backend.Backend, missing string) string {
	switch {
	case strings.Contains(missing, "x509: certificate signed by unknown authority") && r.caFile != "":
		return fmt.Sprintf("%s does not have the authority of the server's certificate; repeat this with the file that has", r.caFile)
	case strings.Contains(missing, "x509: certificate signed by unknown authority"):
		return "repeat this with --ca-file, the authority of the server's certificate"
	case strings.Contains(missing, "x509: certificate is valid for "), strings.Contains(missing, "x509: certificate is not valid for any names"),
		strings.Contains(missing, "because it doesn't contain any IP SANs"):
		return "repeat this with --server-name, a name that the server's certificate has"
	case strings.Contains(missing, "the server does not serve "):
		return fmt.Sprintf("it serves %s; repeat this with what it serves, or undo it: portico unregister %s", someNames(served(b)), r.name)
	}
	return "see: portico backends " + r.name
}

// look returns the Backend as it is now, and what it still lacks; "" is nothing.
func (w *registerWait) look(ctx context.Context) (b *backend.Backend, missing string, err error) {
	b = new(backend.Backend)
	switch err := w.gateway.get(ctx, backendPath(w.want.name), b); {
	case apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err):
		return b, err.Error(), nil
	case err != nil:
		return nil, "", err
	}
	return b, cmp.Or(lacks(b, backend.Available), lacks(b, backend.Registered)), nil
}

// lacks says what a condition of a Backend lacks to be true; "" is nothing. A
// condition that was reached before the Backend was changed counts for nothing.
func lacks(b *backend.Backend, condition string) string {
	c := meta.FindStatusCondition(b.Status.Conditions, condition)
	switch {
	case c == nil:
		return "the gateway has not checked it yet"
	case c.ObservedGeneration != 0 && c.ObservedGeneration < b.Generation:
		return "the gateway has not checked the change yet"
	case c.Status != metav1.ConditionTrue:
		return fmt.Sprintf("%s is %s: %s: %s", c.Type, c.Status, c.Reason, oneLine(c.Message))
	}
	return ""
}

// summary tells what there is now.
func (w *registerWait) summary(b *backend.Backend) error {
	return printRows(w.out, []string{"ENDPOINT", "WEIGHT", "STATE", "FOR", "LAST ERROR"}, endpointRows(b, time.Now()))
}
