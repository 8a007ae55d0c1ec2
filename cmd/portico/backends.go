package main

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
)

const backendsExample = `  # all Backends
  portico backends

  # one Backend: endpoints, states, groups
  portico backends billing

  # the stored object
  portico backends billing -o yaml`

// backendsPath is where Backends are served.
const backendsPath = "/apis/" + backend.Group + "/" + backend.Version + "/backends"

func newBackends() *cobra.Command {
	var r readCommand
	return r.complete(&cobra.Command{
		Use:     "backends [NAME]",
		Aliases: []string{"backend"},
		Short:   "Show the servers behind a gateway and their health",
		Long:    "Show the Backends of a gateway with their healthy endpoints and groups, or one Backend with the state of each\nendpoint as the elected gateway sees it.",
		Example: backendsExample,
		Args:    backendName(0, ""),
	}, func(ctx context.Context, w io.Writer, gateway *gatewayClient, args []string) error {
		if len(args) == 0 {
			var table metav1.Table
			return gateway.show(ctx, w, r.out, backendsPath, nil, &table, func() error {
				if len(table.Rows) == 0 {
					_, err := fmt.Fprintln(w, `No backends are registered. See "portico register --help", and "portico routes" for what is served.`)
					return err
				}
				return printTable(w, &table, r.out == outputWide)
			})
		}
		var b backend.Backend
		err := gateway.show(ctx, w, r.out, backendPath(args[0]), nil, &b, func() error { return printBackend(w, &b, time.Now()) })
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
	fmt.Fprintf(w, "Name:   %s\nAge:    %s\nServes: %s\n\n", b.Name, since(b.CreationTimestamp, now), orNone(served(b)...))
	var rows [][]string
	for _, c := range b.Status.Conditions {
		rows = append(rows, []string{c.Type, string(c.Status), orNone(c.Reason), since(c.LastTransitionTime, now), orNone(oneLine(c.Message))})
	}
	if err := printRows(w, []string{"CONDITION", "STATUS", "REASON", "FOR", "MESSAGE"}, rows); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return printRows(w, endpointColumns, endpointRows(b, now))
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
		rows = append(rows, []string{e.URL, orNone(weights[e.URL]), string(e.State), since(e.LastTransitionTime, now), orNone(oneLine(e.LastError))})
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

// maxServedNames bounds the names in a message.
const maxServedNames = 10

// someNames returns the first names for a message.
func someNames(names []string) string {
	switch n := len(names); {
	case n == 0:
		return "nothing"
	case n > maxServedNames:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxServedNames], ", "), n-maxServedNames)
	}
	return strings.Join(names, ", ")
}

func since(t metav1.Time, now time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(t.Time))
}
