package registration

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/apiservice/backend"
	"portico/cmd/portico/cli"
	"portico/cmd/portico/client"
)

const (
	waitInterval = 200 * time.Millisecond // between requests for the Backend
	// repeatReason is the least time between two lines of progress: reasons may alternate.
	repeatReason = 2 * time.Second
)

// retryUnavailable repeats write while the gateway answers 503 or 429, for limit, and prints why: a
// gateway that starts takes no writes until it has read admission configurations from the core server.
func retryUnavailable(ctx context.Context, limit time.Duration, progress io.Writer, write func() error) error {
	deadline := time.Now().Add(limit)
	for said := ""; ; {
		err := write()
		if err == nil || !apierrors.IsServiceUnavailable(err) && !apierrors.IsTooManyRequests(err) || time.Now().After(deadline) {
			return err
		}
		if err.Error() != said {
			said = err.Error()
			fmt.Fprintf(progress, "waiting: %s\n", said)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(waitInterval):
		}
	}
}

// waitRegistered returns nil once the Backend is available and registered, and prints why it
// is not meanwhile.
func waitRegistered(ctx context.Context, c *client.Client, r *registration, limit time.Duration, out, progress io.Writer) error {
	began, printed := time.Now(), time.Time{}
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(waitInterval)
	defer tick.Stop()
	for reason := ""; ; {
		b, lacking, err := missing(ctx, c, r.name)
		switch {
		case err != nil:
			return err
		case lacking == "":
			fmt.Fprintf(out, "available after %v\n", time.Since(began).Round(10*time.Millisecond))
			return cli.PrintRows(out, endpointColumns, endpointRows(b, time.Now()))
		case lacking != reason && time.Since(printed) >= repeatReason:
			fmt.Fprintf(progress, "waiting: %s\n", lacking)
			reason, printed = lacking, time.Now()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for backend %s: interrupted; it stays registered", r.name)
		case <-deadline.C:
			return fmt.Errorf("wait for backend %s: not available after %v: %s (it stays registered; %s)", r.name, limit, lacking, r.advice(b, lacking))
		case <-tick.C:
		}
	}
}

// advice returns the remedy for a condition that is missing.
func (r *registration) advice(b *backend.Backend, missing string) string {
	switch {
	case strings.Contains(missing, "x509: certificate signed by unknown authority") && r.caFile != "":
		return fmt.Sprintf("%s does not contain the authority of the server's certificate; repeat this with the file that does", r.caFile)
	case strings.Contains(missing, "x509: certificate signed by unknown authority"):
		return "repeat this with --ca-file, the authority of the server's certificate"
	case strings.Contains(missing, "x509: certificate is valid for "), strings.Contains(missing, "x509: certificate is not valid for any names"),
		strings.Contains(missing, "because it doesn't contain any IP SANs"):
		return "repeat this with --server-name, a name that the server's certificate has"
	case strings.Contains(missing, "the server does not serve "):
		return fmt.Sprintf("it serves %s; repeat this with groups that it serves, or undo it: portico unregister %s", cli.SomeNames(served(b)), r.name)
	}
	return "see: portico backends " + r.name
}

// missing returns the Backend and why it cannot be used yet; "" means that it can.
func missing(ctx context.Context, c *client.Client, name string) (b *backend.Backend, reason string, err error) {
	b = new(backend.Backend)
	switch err := c.Send(ctx, http.MethodGet, backendPath(name), nil, nil, b); {
	case apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err):
		return b, err.Error(), nil
	case err != nil:
		return nil, "", err
	}
	return b, cmp.Or(lacks(b, backend.Available), lacks(b, backend.Registered)), nil
}

// lacks returns why a condition of a Backend is not true; "" means that it is. A condition
// of an earlier generation does not count.
func lacks(b *backend.Backend, condition string) string {
	c := meta.FindStatusCondition(b.Status.Conditions, condition)
	switch {
	case c == nil:
		return "the gateway has not checked it yet"
	case c.ObservedGeneration != 0 && c.ObservedGeneration < b.Generation:
		return "the gateway has not checked the change yet"
	case c.Status != metav1.ConditionTrue:
		return fmt.Sprintf("%s is %s: %s: %s", c.Type, c.Status, c.Reason, cli.OneLine(c.Message))
	}
	return ""
}
