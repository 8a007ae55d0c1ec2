package registration

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"portico/apiservice/backend"
	"portico/cmd/portico/cli"
	"portico/cmd/portico/client"
)

const backendsExample = `  # all Backends
  portico backends

  # one Backend: endpoints, states, groups
  portico backends billing

  # the stored object
  portico backends billing -o yaml`

// backendsPath is where Backends are served.
const backendsPath = "/apis/" + backend.Group + "/" + backend.Version + "/backends"

// NewBackends returns the command that shows Backends.
func NewBackends() *cobra.Command {
	var r client.ReadCommand
	return r.Complete(&cobra.Command{
		Use:     "backends [NAME]",
		Aliases: []string{"backend"},
		Short:   "Show the servers behind a gateway and their health",
		Long:    "Show the Backends of a gateway with their healthy endpoints and groups, or one Backend with the state of each\nendpoint as the elected gateway sees it.",
		Example: backendsExample,
		Args:    backendName(0, ""),

		ValidArgsFunction: r.CompleteNames(backendsPath),
	}, func(ctx context.Context, w io.Writer, gateway *client.Client, args []string) error {
		if len(args) == 0 {
			var table metav1.Table
			return gateway.Show(ctx, w, r.Out, backendsPath, nil, &table, func() error {
				if len(table.Rows) == 0 {
					_, err := fmt.Fprintln(w, `No backends are registered. See "portico register --help", and "portico routes" for what is served.`)
					return err
				}
				return cli.PrintTable(w, &table, r.Out == cli.OutputWide)
			})
		}
		var b backend.Backend
		err := gateway.Show(ctx, w, r.Out, backendPath(args[0]), nil, &b, func() error { return printBackend(w, &b, time.Now()) })
		if apierrors.IsNotFound(err) {
			return elsewhere(err)
		}
		return err
	})
}

// elsewhere adds to the error about a missing Backend where the others are listed.
func elsewhere(err error) error { return fmt.Errorf("%w; see portico backends", err) }

// printBackend prints one Backend.
func printBackend(w io.Writer, b *backend.Backend, now time.Time) error {
	fmt.Fprintf(w, "Name:   %s\nAge:    %s\nServes: %s\n\n", b.Name, since(b.CreationTimestamp, now), cli.OrNone(served(b)...))
	var rows [][]string
	for _, c := range b.Status.Conditions {
		rows = append(rows, []string{c.Type, string(c.Status), cli.OrNone(c.Reason), since(c.LastTransitionTime, now), cli.OrNone(cli.OneLine(c.Message))})
	}
	if err := cli.PrintRows(w, []string{"CONDITION", "STATUS", "REASON", "FOR", "MESSAGE"}, rows); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return cli.PrintRows(w, endpointColumns, endpointRows(b, now))
}

var endpointColumns = []string{"ENDPOINT", "WEIGHT", "STATE", "FOR", "LAST ERROR"}

// endpointRows returns a row for each endpoint of the status, and for each of the
// spec that the status lacks.
func endpointRows(b *backend.Backend, now time.Time) (rows [][]string) {
	weights := map[string]string{}
	for _, e := range b.Spec.Endpoints {
		weights[e.URL] = "1"
		if e.Weight != nil {
			weights[e.URL] = fmt.Sprint(*e.Weight)
		}
	}
	shown := map[string]bool{}
	for _, e := range b.Status.Endpoints {
		shown[e.URL] = true
		rows = append(rows, []string{e.URL, cli.OrNone(weights[e.URL]), string(e.State), since(e.LastTransitionTime, now), cli.OrNone(cli.OneLine(e.ErrorAndTime(now)))})
	}
	for _, e := range b.Spec.Endpoints {
		if !shown[e.URL] {
			rows = append(rows, []string{e.URL, weights[e.URL], string(backend.EndpointUnknown), "<unknown>", "<none>"})
		}
	}
	return rows
}

// served returns the group/versions of a Backend, with their freshness unless it is Current.
func served(b *backend.Backend) (names []string) {
	for _, gv := range b.Status.GroupVersions {
		name := strings.TrimPrefix(gv.Group+"/"+gv.Version, "/")
		if gv.Freshness != "" && gv.Freshness != "Current" {
			name += " (" + strings.ToLower(gv.Freshness) + ")"
		}
		names = append(names, name)
	}
	return names
}

func since(t metav1.Time, now time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(t.Time))
}
