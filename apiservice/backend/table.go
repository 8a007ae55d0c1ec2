package backend

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// shownGroups is how many groups a row of the table names.
const shownGroups = 3

func columns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: "Name of the backend."},
		{Name: "Endpoints", Type: "string", Description: "Healthy endpoints, of all that are not drained."},
		{Name: "Available", Type: "string", Description: "Whether requests can be sent, and why not."},
		{Name: "Groups", Type: "string", Description: "The API groups that the server lists."},
		{Name: "Age", Type: "string", Description: "How long ago the object was created."},
		{Name: "Balance", Type: "string", Priority: 1, Description: "How requests are spread over the endpoints."},
		{Name: "Last Error", Type: "string", Priority: 1, Description: "The last error of an endpoint that is not healthy."},
	}
}

func cells(obj runtime.Object) ([]any, error) {
	b, ok := obj.(*Backend)
	if !ok {
		return nil, fmt.Errorf("print Backend: got %T", obj)
	}
	available := string(metav1.ConditionUnknown)
	if c := meta.FindStatusCondition(b.Status.Conditions, Available); c != nil {
		available = string(c.Status)
		if c.Status != metav1.ConditionTrue {
			available = fmt.Sprintf("%s (%s)", c.Status, c.Reason)
		}
	}
	healthy, drained, lastError := 0, 0, "<none>"
	for _, e := range b.Status.Endpoints {
		switch {
		case e.State == EndpointHealthy:
			healthy++
		case e.State == EndpointDraining:
			drained++
		case e.LastError != "" && lastError == "<none>":
			lastError = e.ErrorAndTime(time.Now())
		}
	}
	endpoints := fmt.Sprintf("%d/%d", healthy, max(len(b.Spec.Endpoints), len(b.Status.Endpoints))-drained)
	return []any{b.Name, endpoints, available, b.Status.groups(), table.ConvertToHumanReadableDateType(b.CreationTimestamp), string(b.Spec.Policy().Balance), lastError}, nil
}

// ErrorAndTime returns the last error and how long ago it was seen first, or "" if there is none.
func (e *EndpointStatus) ErrorAndTime(now time.Time) string {
	if e.LastError == "" || e.LastErrorTime.IsZero() {
		return e.LastError
	}
	return fmt.Sprintf("%s (%s ago)", e.LastError, duration.HumanDuration(now.Sub(e.LastErrorTime.Time)))
}

// groups names the first groups and counts the others.
func (s *Status) groups() string {
	var names []string
	for _, gv := range s.GroupVersions {
		name := gv.Group
		if name == "" {
			name = "core"
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	switch more := len(names) - shownGroups; {
	case len(names) == 0:
		return "<none>"
	case more > 0:
		return fmt.Sprintf("%s + %d more...", strings.Join(names[:shownGroups], ","), more)
	}
	return strings.Join(names, ",")
}
