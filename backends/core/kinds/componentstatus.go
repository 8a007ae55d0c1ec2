package kinds

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/rest"
)

// componentStatuses is the row of v1 ComponentStatus, which is deprecated: the health of what the
// server depends on.
func componentStatuses() *rest.Kind {
	return &rest.Kind{
		Info:     resource.Info{Versions: []string{"v1"}, Resource: "componentstatuses", Singular: "componentstatus", Kind: "ComponentStatus", ShortNames: []string{"cs"}},
		Verbs:    []string{"get", "list"},
		Computed: true,
		Columns: []metav1.TableColumnDefinition{
			nameColumn(), column("Status", "string", "Healthy, Unhealthy or Unknown."),
			column("Message", "string", "The message of the check."), column("Error", "string", "The error of the check."),
		},
		Cells: cells(func(c *corev1.ComponentStatus) []any {
			status, message, failure := "Unknown", "", ""
			for _, condition := range c.Conditions {
				if condition.Type == corev1.ComponentHealthy {
					status, message, failure = "Unhealthy", condition.Message, condition.Error
					if condition.Status == corev1.ConditionTrue {
						status = "Healthy"
					}
					break
				}
			}
			return []any{c.Name, status, message, failure}
		}),
		Deprecated: func(string) string { return "v1 ComponentStatus is deprecated in v1.19+" },
	}
}
