package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico/resource/client"
)

// maxAnswer bounds what a command reads of one answer, in bytes: a list of
// everything that is registered is far smaller.
const maxAnswer = 64 << 20

// clientFlags are the flags of commands that are clients of a gateway, by the
// rules of every Kubernetes client: --kubeconfig, else $KUBECONFIG, else
// ~/.kube/config.
type clientFlags struct {
	kubeconfig, context string
	timeout             time.Duration
}

func (f *clientFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` that says where the gateway is and who asks (default: $KUBECONFIG, else ~/.kube/config)")
	fs.StringVar(&f.context, "context", "", "`name` of the context in it (default: its current one)")
	fs.DurationVar(&f.timeout, "request-timeout", 30*time.Second, "most `time` for one request")
}

// gatewayClient sends a command's requests.
type gatewayClient struct {
	host      string
	timeout   time.Duration
	transport http.RoundTripper
}

// open reads the configuration. Nothing is sent yet.
func (f *clientFlags) open() (*gatewayClient, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.context}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New(`read kubeconfig: there is none; name one with --kubeconfig or $KUBECONFIG ("portico up" prints where its own is)`)
	case err != nil:
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	cfg.UserAgent = "portico-cli"
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	host, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return &gatewayClient{host: strings.TrimSuffix(host.String(), "/"), timeout: f.timeout, transport: transport}, nil
}

// do sends a request and returns the body of its answer. An error is one line
// that says what to do about it, or what the gateway said.
func (c *gatewayClient) do(ctx context.Context, method, path string, query url.Values, body any, accept string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
	}
	to := client.New(client.Config{BaseURL: c.host, Transport: formTransport{c.transport, accept}, UserAgent: "portico-cli"})
	res, err := to.Do(ctx, method, path, query, data)
	if err != nil {
		return nil, c.explain(path, err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read answer of %s: %w", path, err)
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

// refusedError is what the gateway said, in one line.
type refusedError struct {
	line string
	err  error
}

func (e *refusedError) Error() string { return e.line }
func (e *refusedError) Unwrap() error { return e.err }

// explain turns an error of a request into one line for whoever typed it.
func (c *gatewayClient) explain(path string, err error) error {
	var unreached *unreachedError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &unreached) && errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("ask %s for %s: no answer within %v; see --request-timeout", c.host, path, c.timeout)
	case errors.As(err, &unreached):
		return fmt.Errorf("reach %s: %w; does the gateway run, and are --kubeconfig and --context those of it?", c.host, unreached.err)
	case !errors.As(err, &status):
		return err
	}
	line := statusLine(status)
	if details := status.Status().Details; apierrors.IsNotFound(err) && (details == nil || details.Name == "") {
		line += fmt.Sprintf(" (%s does not serve %s: is it a gateway of portico?)", c.host, path)
	}
	return &refusedError{line, err}
}

// statusLine is a Status in one line: its message, and the causes that it does
// not tell itself.
func statusLine(from apierrors.APIStatus) string {
	s := from.Status()
	parts := []string{strings.Join(strings.Fields(s.Message), " ")}
	if s.Message == "" {
		parts[0] = string(s.Reason)
	}
	if s.Details == nil {
		return parts[0]
	}
	for _, cause := range s.Details.Causes {
		if cause.Field != "" && !strings.Contains(s.Message, cause.Field) {
			parts = append(parts, cause.Field+": "+strings.Join(strings.Fields(cause.Message), " "))
		}
	}
	return strings.Join(slices.Compact(parts), "; ")
}

// formTransport asks for answers in another form than JSON, and tells errors of
// its own from what was answered.
type formTransport struct {
	next   http.RoundTripper
	accept string
}

func (t formTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.accept != "" {
		req = req.Clone(req.Context())
		req.Header.Set("Accept", t.accept)
	}
	res, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, &unreachedError{err}
	}
	return res, nil
}

// unreachedError says that no answer came.
type unreachedError struct{ err error }

func (e *unreachedError) Error() string { return e.err.Error() }
func (e *unreachedError) Unwrap() error { return e.err }
