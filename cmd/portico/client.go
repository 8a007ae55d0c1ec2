package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"portico/resource/client"
)

// maxAnswer is the largest response that a command reads, in bytes: far more than a
// list of all registrations.
const maxAnswer = 64 << 20

// userAgent is the user agent of commands, and so their field manager.
const userAgent = "portico-cli"

// clientFlags are the flags of commands that are clients of a gateway, by the
// rules of every Kubernetes client: --kubeconfig, else $KUBECONFIG, else
// ~/.kube/config.
type clientFlags struct {
	kubeconfig, context string
	timeout             time.Duration
}

func (f *clientFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `file` (default: $KUBECONFIG, else ~/.kube/config)")
	fs.StringVar(&f.context, "context", "", "`name` of the context in the kubeconfig (default: the current one)")
	fs.DurationVar(&f.timeout, "request-timeout", 30*time.Second, "maximum `time` of one request; 0 means no limit")
}

// gatewayClient sends a command's requests.
type gatewayClient struct {
	host string
	// timeout of one request; 0 is none.
	timeout   time.Duration
	transport http.RoundTripper
	// who is the user, for messages.
	who credentials
	// warnings gets a line for each warning of the gateway; nil drops them.
	warnings io.Writer
}

// do sends a request and returns the body of the response. An error is one line: the
// gateway's message, or the cause and how to resolve it.
func (c *gatewayClient) do(ctx context.Context, method, path string, query url.Values, body any, accept string) ([]byte, error) {
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
	}
	to := client.New(client.Config{BaseURL: c.host, Transport: formTransport{c.transport, accept}, UserAgent: userAgent})
	res, err := to.Do(ctx, method, path, query, data)
	if err != nil {
		return nil, c.explain(method, path, err)
	}
	defer res.Body.Close()
	c.warn(res.Header)
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, c.late(path, "no whole answer")
	case err != nil:
		return nil, fmt.Errorf("read answer of %s for %s: %w", c.host, path, err)
	case len(answer) > maxAnswer:
		return nil, fmt.Errorf("read answer of %s: it is larger than %d bytes", path, maxAnswer)
	}
	return answer, nil
}

// get decodes the answer to a GET.
func (c *gatewayClient) get(ctx context.Context, path string, into any) error {
	return c.send(ctx, http.MethodGet, path, nil, into)
}

// send sends an object, or none, and decodes the one that is answered.
func (c *gatewayClient) send(ctx context.Context, method, path string, body, into any) error {
	answer, err := c.do(ctx, method, path, nil, body, "")
	if err != nil || into == nil {
		return err
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("read answer of %s: %w", path, err)
	}
	return nil
}

// apply sends an object by server-side apply, and decodes the one that is answered.
// Fields of other managers are taken over if the object has them.
func (c *gatewayClient) apply(ctx context.Context, path string, object, into any) error {
	answer, err := c.do(ctx, http.MethodPatch, path, url.Values{"fieldManager": {userAgent}, "force": {"true"}}, object, "")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("read answer of %s: %w", path, err)
	}
	return nil
}

// warn prints the warnings of an answer.
func (c *gatewayClient) warn(h http.Header) {
	if c.warnings == nil {
		return
	}
	parsed, _ := utilnet.ParseWarningHeaders(h.Values("Warning"))
	for _, w := range parsed {
		fmt.Fprintf(c.warnings, "Warning: %s\n", oneLine(w.Text))
	}
}

// formTransport asks for answers in another form than JSON, marks the body of a PATCH as
// an apply, and marks errors of requests that got no answer.
type formTransport struct {
	next   http.RoundTripper
	accept string
}

func (t formTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	if t.accept != "" {
		req.Header.Set("Accept", t.accept)
	}
	if req.Method == http.MethodPatch {
		req.Header.Set("Content-Type", string(types.ApplyPatchType)) // of which JSON is a form
	}
	res, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, &unreachedError{err}
	}
	return res, nil
}

// unreachedError is a request without a response.
type unreachedError struct{ err error }

func (e *unreachedError) Error() string { return e.err.Error() }
func (e *unreachedError) Unwrap() error { return e.err }
