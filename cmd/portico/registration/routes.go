package registration

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/cmd/portico/cli"
	"portico/cmd/portico/client"
)

const routesExample = `  # the server of each group, in the order of discovery
  portico routes

  # with priorities and the messages of conditions
  portico routes -o wide`

// apiServicesPath is where APIServices are served.
const apiServicesPath = "/apis/" + apiservice.Group + "/v1/apiservices"

// NewRoutes returns the command that shows group/versions and their servers.
func NewRoutes() *cobra.Command {
	var r client.ReadCommand
	return r.Complete(&cobra.Command{
		Use:     "routes",
		Short:   "Show which server serves which group and version",
		Long:    "Show the route of each group and version: the backend or the service that gets its requests, and whether it is\navailable. The groups are in the order of discovery, the preferred version of a group first.",
		Example: routesExample,
		Args:    cli.NoArguments,
	}, func(ctx context.Context, w io.Writer, gateway *client.Client, _ []string) error {
		var list apireg.APIServiceList
		return gateway.Show(ctx, w, r.Out, apiServicesPath, nil, &list, func() error { return printRoutes(w, &list, r.Out == cli.OutputWide) })
	})
}

func printRoutes(w io.Writer, list *apireg.APIServiceList, wide bool) error {
	services := make([]*apireg.APIService, len(list.Items))
	for i := range list.Items {
		services[i] = &list.Items[i]
	}
	columns := []string{"GROUP/VERSION", "SERVER", "AVAILABLE", "REGISTERED BY"}
	if wide {
		columns = append(columns, "PRIORITY", "MESSAGE")
	}
	var rows [][]string
	for _, a := range apiservice.Ordered(services) {
		rows = append(rows, routeRow(a, wide))
	}
	return cli.PrintRows(w, columns, rows)
}

func routeRow(a *apireg.APIService, wide bool) []string {
	available, message := "Unknown", "<none>"
	if c, ok := apiservice.Current(a); ok {
		available, message = string(c.Status), cli.OrNone(cli.OneLine(c.Message))
		if !c.Available() {
			available = fmt.Sprintf("%s (%s)", c.Status, c.Reason)
		}
	}
	by := "a user"
	if apiservice.IsAutomanaged(a) {
		by = "discovery"
	}
	row := []string{groupVersionOf(a), serverOf(a), available, by}
	if wide {
		row = append(row, fmt.Sprintf("%d/%d", a.Spec.GroupPriorityMinimum, a.Spec.VersionPriority), message)
	}
	return row
}

// serverOf names the server of an APIService.
func serverOf(a *apireg.APIService) string {
	if s := a.Spec.Service; s != nil {
		return fmt.Sprintf("service %s/%s:%d", s.Namespace, s.Name, apiservice.Port(s))
	}
	return cli.OrNone(a.Annotations[apiservice.BackendAnnotation])
}

func groupVersionOf(a *apireg.APIService) string {
	return strings.TrimPrefix(a.Spec.Group+"/"+a.Spec.Version, "/")
}
