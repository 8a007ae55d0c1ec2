package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"portico/cmd/portico/cli"
	"portico/resource/egress"
)

// userAgent is the user agent of commands, and so their field manager.
const userAgent = "portico-cli"

// Flags are the flags of commands that are clients of a gateway. They find the kubeconfig by --kubeconfig, else by
// $KUBECONFIG, else in a portico up that runs on the default data folder, else ~/.kube/config.
type Flags struct {
	kubeconfig, context string
	timeout             time.Duration
}

func (f *Flags) Add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `file` (default: $KUBECONFIG, else that of a portico up that runs on the default data folder, else ~/.kube/config)")
	fs.StringVar(&f.context, "context", "", "`name` of the context in the kubeconfig (default: the current one)")
	fs.DurationVar(&f.timeout, "request-timeout", 30*time.Second, "maximum `time` of one request; 0 means no limit")
}

// Use names the kubeconfig if --kubeconfig does not.
func (f *Flags) Use(kubeconfig string) {
	if f.kubeconfig == "" {
		f.kubeconfig = kubeconfig
	}
}

// Client sends a command's requests.
type Client struct {
	host    string
	timeout time.Duration // of one request; 0 means no limit
	rest    rest.Interface
	config  *rest.Config
	user    credentials // for messages
}

// New returns a client that prints a line for each warning of the gateway.
func New(cfg *rest.Config, timeout time.Duration, warnings io.Writer) (*Client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent, cfg.QPS, cfg.NegotiatedSerializer = userAgent, -1, scheme.Codecs.WithoutConversion()
	cfg.WarningHandler = rest.NewWarningWriter(warnings, rest.WarningWriterOptions{})
	cfg.Wrap(egress.RefuseRedirects)
	host, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, err
	}
	client, err := rest.UnversionedRESTClientFor(cfg)
	if err != nil {
		return nil, err
	}
	return &Client{host: strings.TrimSuffix(host.String(), "/"), timeout: timeout, rest: client, config: cfg}, nil
}

// do sends one request, without retries, and returns the body of the response, also with an
// error. The body of a PATCH is a server-side apply. An error is one line: the gateway's message, or the cause
// and a remedy.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, body any, accept string) ([]byte, error) {
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	request := c.rest.Verb(method).AbsPath(path).MaxRetries(0)
	for name, values := range query {
		for _, value := range values {
			request.Param(name, value)
		}
	}
	if accept != "" {
		request.SetHeader("Accept", accept)
	}
	if method == http.MethodPatch {
		request.SetHeader("Content-Type", string(types.ApplyPatchType)) // JSON is a form of YAML
	}
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
		request.Body(data)
	}
	result := request.Do(ctx)
	answer, _ := result.Raw()
	if err := result.Error(); err != nil {
		return []byte(cmp.Or(string(answer), unexpected(err))), c.explain(method, path, err)
	}
	return answer, nil
}

// unexpected returns the text of a response that is no Status.
func unexpected(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return ""
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Type == metav1.CauseTypeUnexpectedServerResponse {
			return cause.Message
		}
	}
	return ""
}

// Get sends a GET and returns the body of the response, also with an error.
func (c *Client) Get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	return c.do(ctx, http.MethodGet, path, query, nil, "")
}

// GetAs sends a GET with the header Accept and returns the body of the response, also with an error.
func (c *Client) GetAs(ctx context.Context, path, accept string) ([]byte, error) {
	return c.do(ctx, http.MethodGet, path, nil, nil, accept)
}

// Host returns the URL of the gateway, and Config the configuration for other clients of it.
func (c *Client) Host() string         { return c.host }
func (c *Client) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Send sends an object, or nil, and decodes the response unless into is nil.
func (c *Client) Send(ctx context.Context, method, path string, query url.Values, body, into any) error {
	answer, err := c.do(ctx, method, path, query, body, "")
	if err != nil || into == nil {
		return err
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("decode response of %s: %w", path, err)
	}
	return nil
}

// Apply sends an object by server-side apply, and decodes the response. It takes over
// fields of other managers that the object has.
func (c *Client) Apply(ctx context.Context, path string, object, into any) error {
	return c.Send(ctx, http.MethodPatch, path, url.Values{"fieldManager": {userAgent}, "force": {"true"}}, object, into)
}

// Show sends a GET and prints the response as out says. A table is printed by table, which
// gets the response decoded into into.
func (c *Client) Show(ctx context.Context, w io.Writer, out cli.OutputFlag, path string, query url.Values, into any, table func() error) error {
	accept := ""
	if _, ok := into.(*metav1.Table); ok && !out.Raw() {
		accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
	}
	answer, err := c.do(ctx, http.MethodGet, path, query, nil, accept)
	if err != nil {
		return err
	}
	if out.Raw() {
		return out.PrintRaw(w, answer)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("decode response of %s: %w", path, err)
	}
	return table()
}

// ReadCommand is a command that prints objects of a gateway.
type ReadCommand struct {
	client Flags
	Out    cli.OutputFlag
}

// CompleteNames completes the first argument of a command by the names of the objects at a path of the gateway.
func (f *Flags) CompleteNames(path string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
		gateway, err := f.Open(io.Discard)
		var list metav1.PartialObjectMetadataList
		if len(args) == 0 && err == nil {
			err = gateway.Send(cmd.Context(), http.MethodGet, path, url.Values{"resourceVersion": {"0"}}, nil, &list)
		}
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		for _, item := range list.Items {
			names = append(names, item.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteNames is Flags.CompleteNames for the flags of the command.
func (r *ReadCommand) CompleteNames(path string) cobra.CompletionFunc {
	return r.client.CompleteNames(path)
}

// Complete adds the flags that these commands share, and runs read with a client.
func (r *ReadCommand) Complete(cmd *cobra.Command, read func(ctx context.Context, w io.Writer, gateway *Client, args []string) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := r.Out.Check(); err != nil {
			return err
		}
		gateway, err := r.client.Open(cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		return read(cmd.Context(), cmd.OutOrStdout(), gateway, args)
	}
	cmd.Flags().SortFlags = false
	r.Out.Add(cmd)
	r.client.Add(cmd)
	return cmd
}
