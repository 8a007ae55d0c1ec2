package kinds

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// The texts of cells without a value, as of kubectl.
const (
	none    = "<none>"
	unset   = "<unset>"
	unknown = "<unknown>"
)

func nameColumn() metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: "name",
		Description: "The name of the object, unique for its kind within its namespace."}
}

func ageColumn() metav1.TableColumnDefinition {
	return column("Age", "string", "Time since the object was created.")
}

func column(name, kind, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: kind, Description: description}
}

// wide returns a column that kubectl shows with -o wide.
func wide(name, kind, description string) metav1.TableColumnDefinition {
	c := column(name, kind, description)
	c.Priority = 1
	return c
}

// age returns the time since t, in the short form of kubectl ("5m", "3d2h").
func age(t metav1.Time) string {
	if t.IsZero() {
		return unknown
	}
	return duration.HumanDuration(time.Since(t.Time))
}

func microAge(t metav1.MicroTime) string { return age(metav1.NewTime(t.Time)) }

// maxListed bounds the entries of a list in a cell.
const maxListed = 3

// shortList joins the first entries and counts the others.
func shortList(all []string, empty string) string {
	switch {
	case len(all) == 0:
		return empty
	case len(all) > maxListed:
		return fmt.Sprintf("%s + %d more...", strings.Join(all[:maxListed], ","), len(all)-maxListed)
	}
	return strings.Join(all, ",")
}
