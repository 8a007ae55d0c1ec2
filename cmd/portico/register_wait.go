package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
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

// run returns nil when the server is available and what was asked for leads to it.
// Why it still waits is said as [reasons] has it.
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
			return fmt.Errorf("wait for backend %s: not available after %v: %s (it stays registered; %s)", w.want.name, limit, missing, advice(w.want.name, missing))
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

// advice is what to do about a server that is still missing: by which flag it is
// trusted, if that is what it lacks.
func advice(name, missing string) string {
	switch {
	case strings.Contains(missing, "x509: certificate signed by unknown authority"):
		return "repeat this with --ca-file, the authority of the server's certificate"
	case strings.Contains(missing, "x509: certificate is valid for "), strings.Contains(missing, "x509: certificate is not valid for any names"),
		strings.Contains(missing, "because it doesn't contain any IP SANs"):
		return "repeat this with --server-name, a name that the server's certificate has"
	case strings.HasPrefix(missing, notServed):
		return "repeat this with what it serves, or undo it: portico unregister " + name
	}
	return "see: portico backends " + name
}

// look returns the Backend as it is now, and what it still lacks; "" is nothing.
func (w *registerWait) look(ctx context.Context) (b *backend.Backend, missing string, err error) {
	b = new(backend.Backend)
	switch err := w.gateway.get(ctx, backendPath(w.want.name), b); {
	case apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err):
		return nil, err.Error(), nil
	case err != nil:
		return nil, "", err
	}
	wanted := []string{backend.Available}
	if b.Spec.AutoRegister != nil || b.Spec.REST != nil {
		wanted = append(wanted, backend.Registered)
	}
	for _, condition := range wanted {
		if missing = lacks(b, condition); missing != "" {
			return b, missing, nil
		}
	}
	if missing = w.want.unserved(b); missing != "" {
		return b, missing, nil
	}
	for _, want := range w.want.apiServices() {
		var a apireg.APIService
		if err := w.gateway.get(ctx, apiServicesPath+"/"+url.PathEscape(want.Name), &a); err != nil {
			return nil, "", err
		}
		if c, ok := apiservice.Current(&a); !ok || !c.Available() {
			return b, fmt.Sprintf("APIService %s is not available yet: %s", a.Name, orNone(oneLine(c.Reason+" "+c.Message))), nil
		}
	}
	return b, "", nil
}

// lacks says what a condition of a Backend lacks to be true; "" is nothing. A
// condition that was reached before the Backend was changed counts for nothing.
func lacks(b *backend.Backend, condition string) string {
	c := meta.FindStatusCondition(b.Status.Conditions, condition)
	switch {
	case c == nil:
		return "the gateway has not looked at it yet"
	case c.ObservedGeneration != 0 && c.ObservedGeneration < b.Generation:
		return "the gateway has not looked at the change yet"
	case c.Status != metav1.ConditionTrue:
		return fmt.Sprintf("%s is %s: %s: %s", c.Type, c.Status, c.Reason, oneLine(c.Message))
	}
	return ""
}

// summary tells what there is now.
func (w *registerWait) summary(b *backend.Backend) error {
	return printRows(w.out, []string{"ENDPOINT", "WEIGHT", "STATE", "FOR", "LAST ERROR"}, endpointRows(b, time.Now()))
}
