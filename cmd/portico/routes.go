package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
)

const routesExample = `  # which server answers for which group, in the order of discovery
  portico routes

  # with priorities, and what is wrong in full
  portico routes -o wide`

// apiServicesPath is where APIServices are served.
const apiServicesPath = "/apis/" + apiservice.Group + "/v1/apiservices"

func newRoutes() *cobra.Command {
	var c clientFlags
	var out outputFlag
	cmd := &cobra.Command{
		Use:     "routes",
		Short:   "Show which server answers for which group and version",
		Long:    "Show the route of each group and version: the backend or the service that requests for it are sent to, and\nwhether they can be. The groups are in the order of discovery, the preferred version of a group first.",
		Example: routesExample,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			gateway, err := c.open()
			if err != nil {
				return err
			}
			return listRoutes(cmd.Context(), cmd.OutOrStdout(), gateway, out)
		},
	}
	cmd.Flags().SortFlags = false
	out.add(cmd)
	c.add(cmd)
	return cmd
}

func listRoutes(ctx context.Context, w io.Writer, gateway *gatewayClient, out outputFlag) error {
	answer, err := gateway.do(ctx, "GET", apiServicesPath, nil, nil, "")
	if err != nil {
		return err
	}
	if out.raw() {
		return out.printRaw(w, answer)
	}
	var list apireg.APIServiceList
	if err := json.Unmarshal(answer, &list); err != nil {
		return fmt.Errorf("read list of APIServices: %w", err)
	}
	services := make([]*apireg.APIService, len(list.Items))
	for i := range list.Items {
		services[i] = &list.Items[i]
	}
	columns := []string{"GROUP/VERSION", "SERVER", "AVAILABLE", "REGISTERED BY"}
	if out == outputWide {
		columns = append(columns, "PRIORITY", "MESSAGE")
	}
	var rows [][]string
	for _, a := range apiservice.Ordered(services) {
		rows = append(rows, routeRow(a, out == outputWide))
	}
	return printRows(w, columns, rows)
}

func routeRow(a *apireg.APIService, wide bool) []string {
	available, message := "Unknown", "<none>"
	if c, ok := apiservice.Current(a); ok {
		available, message = string(c.Status), orNone(oneLine(c.Message))
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
	return orNone(a.Annotations[apiservice.BackendAnnotation])
}

func groupVersionOf(a *apireg.APIService) string {
	return strings.TrimPrefix(a.Spec.Group+"/"+a.Spec.Version, "/")
}
