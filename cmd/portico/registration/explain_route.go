package registration

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"portico/apiservice/backend"
	"portico/apiservice/explain"
	"portico/cmd/portico/cli"
	"portico/cmd/portico/client"
)

const explainRouteExample = `  # where a read goes, and why
  portico explain-route /apis/billing.example.com/v1/invoices

  # a write: retries and limits may differ
  portico explain-route /api/v1/namespaces/default/configmaps --verb=create`

// NewExplainRoute returns the command that shows where a request would go.
func NewExplainRoute() *cobra.Command {
	var r client.ReadCommand
	var verb string
	cmd := &cobra.Command{
		Use:   "explain-route PATH",
		Short: "Show where a request would go, and why",
		Long: "Show where the gateway would send a request (APIService, backend, endpoint) and why. Nothing is sent to the backend.\n" +
			"Several gateways may answer differently: each shows its own state.",
		Example: explainRouteExample,
		Args:    cobra.MatchAll(cli.Arguments(1, 1, examplePath), absolutePath),
	}
	cmd.Flags().StringVar(&verb, "verb", "get", "`verb` of the request: get, list, watch, create, update, patch, delete, or an HTTP method")
	return r.Complete(cmd, func(ctx context.Context, w io.Writer, gateway *client.Client, args []string) error {
		var e explain.Explanation
		query := url.Values{explain.PathParameter: args, explain.VerbParameter: {verb}}
		return gateway.Show(ctx, w, r.Out, explain.Path, query, &e, func() error { return printExplanation(w, &e, r.Out == cli.OutputWide, time.Now()) })
	})
}

const examplePath = "/apis/billing.example.com/v1/invoices"

// absolutePath checks that the argument begins with a slash.
func absolutePath(_ *cobra.Command, args []string) error {
	if !strings.HasPrefix(args[0], "/") {
		return fmt.Errorf("%q: a path begins with a slash, as in %s", args[0], examplePath)
	}
	return nil
}

// printExplanation prints an explanation: the result, then what it follows from. wide adds the
// policy of the server.
func printExplanation(w io.Writer, e *explain.Explanation, wide bool, now time.Time) error {
	lines := [][]string{{"Request:", e.Request.Method + " " + e.Request.Path}, {"Means:", meaning(&e.Request)}, {"Result:", resultOf(e)}}
	if a := e.APIService; a != nil {
		lines = append(lines, []string{"APIService:", registrationOf(a)})
	}
	if b := e.Backend; b != nil {
		lines = append(lines, []string{"Backend:", backendOf(b)})
		if wide {
			lines = append(lines, policyOf(&b.Policy)...)
		}
	}
	for _, l := range lines {
		fmt.Fprintf(w, "%-12s %s\n", l[0], cli.OneLine(l[1]))
	}
	fmt.Fprintln(w, "\nBecause:")
	for _, reason := range e.Reasons {
		fmt.Fprintf(w, "  - %s\n", cli.OneLine(reason))
	}
	if e.Backend == nil || len(e.Backend.Endpoints) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return printExplainedEndpoints(w, e.Backend, now)
}

// resultOf says what the client gets.
func resultOf(e *explain.Explanation) string {
	switch {
	case e.Code != 0:
		return fmt.Sprintf("the client gets %d", e.Code)
	case e.Answerer == explain.Server && e.Backend != nil && e.Backend.Pick != "":
		return "goes to " + e.Backend.Pick
	case e.Answerer == explain.Server:
		return "goes to the server"
	}
	return "the gateway answers"
}

// policyOf returns the lines of how requests are sent to a server.
func policyOf(p *explain.Policy) (lines [][]string) {
	for _, l := range [][]string{{"Retries:", p.Retries}, {"Slow start:", p.SlowStart}, {"Connections:", p.MaxConnectionAge}} {
		if l[1] != "" {
			lines = append(lines, l)
		}
	}
	if p.MaxConnectionAge != "" {
		lines[len(lines)-1][1] = "take new requests for " + p.MaxConnectionAge
	}
	return lines
}

func printExplainedEndpoints(w io.Writer, b *explain.Backend, now time.Time) error {
	var rows [][]string
	for _, e := range b.Endpoints {
		pickable := "no"
		switch {
		case e.URL == b.Pick:
			pickable = "picked"
		case e.Pickable:
			pickable = "yes"
		case e.Drains != "":
			pickable = "no, drains"
		}
		weight := fmt.Sprint(e.Weight)
		if e.WeightPercent > 0 {
			weight += fmt.Sprintf(" (%.0f%% now)", e.WeightPercent)
		}
		lastError := backend.EndpointStatus{LastError: e.LastError}
		if e.LastErrorTime != nil {
			lastError.LastErrorTime.Time = *e.LastErrorTime
		}
		rows = append(rows, []string{e.URL, cli.OrNone(string(e.State)), weight, fmt.Sprint(e.InFlight), pickable, cli.OrNone(cli.OneLine(lastError.ErrorAndTime(now)))})
	}
	return cli.PrintRows(w, []string{"ENDPOINT", "STATE", "WEIGHT", "IN FLIGHT", "PICKABLE", "LAST ERROR"}, rows)
}

// meaning describes how the gateway parses a request.
func meaning(r *explain.Request) string {
	if !r.IsResource {
		return r.Verb + " a path that is not of a resource"
	}
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	text := fmt.Sprintf("%s %s of %s", r.Verb, resource, strings.TrimPrefix(r.Group+"/"+r.Version, "/"))
	if r.Name != "" {
		text += " named " + r.Name
	}
	if r.Namespace != "" {
		text += " in namespace " + r.Namespace
	}
	if r.LongRunning {
		text += ", long-running"
	}
	return text
}

func registrationOf(a *explain.APIService) string {
	text := a.Name
	if a.Service != "" {
		text += ", service " + a.Service
	}
	if a.Available {
		return text + ", available"
	}
	return text + ", not available: " + cli.OneLine(a.Reason+": "+a.Message)
}

func backendOf(b *explain.Backend) string {
	text := fmt.Sprintf("%s, %d requests in flight", b.Name, b.InFlight)
	if b.Queued > 0 {
		text += fmt.Sprintf(", %d waiting", b.Queued)
	}
	if b.Panic {
		text += ", ejections are ignored because too few endpoints are healthy"
	}
	return text
}
