package kinds

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// What a cell says when there is nothing to say; kubectl users know these.
const (
	none    = "<none>"
	unset   = "<unset>"
	unknown = "<unknown>"
)

func nameColumn() metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: "name",
		Description: "The object's name, unique for its kind within its namespace."}
}

func ageColumn() metav1.TableColumnDefinition {
	return column("Age", "string", "How long ago the object was created.")
}

func column(name, kind, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: kind, Description: description}
}

// wide is a column that is shown on request only (kubectl get -o wide).
func wide(name, kind, description string) metav1.TableColumnDefinition {
	c := column(name, kind, description)
	c.Priority = 1
	return c
}

// age says how long ago t was, in the short form of kubectl ("5m", "3d2h").
func age(t metav1.Time) string {
	if t.IsZero() {
		return unknown
	}
	return duration.HumanDuration(time.Since(t.Time))
}

func microAge(t metav1.MicroTime) string { return age(metav1.NewTime(t.Time)) }

// maxListed is how many entries of a list fit into a cell.
const maxListed = 3

// shortList joins the first entries and says how many more there are.
func shortList(all []string, empty string) string {
	switch {
	case len(all) == 0:
		return empty
	case len(all) > maxListed:
		return fmt.Sprintf("%s + %d more...", strings.Join(all[:maxListed], ","), len(all)-maxListed)
	}
	return strings.Join(all, ",")
}
