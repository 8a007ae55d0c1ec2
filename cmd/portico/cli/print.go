package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// OutputFlag is -o.
type OutputFlag string

const (
	outputTable OutputFlag = ""
	OutputWide  OutputFlag = "wide"
	outputJSON  OutputFlag = "json"
	outputYAML  OutputFlag = "yaml"
)

func (o *OutputFlag) Add(cmd *cobra.Command) {
	cmd.Flags().StringVarP((*string)(o), "output", "o", "", "output `format`: wide, json or yaml (default: a table)")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"wide", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp)) // it exists
}

func (o OutputFlag) Check() error {
	switch o {
	case outputTable, OutputWide, outputJSON, outputYAML:
		return nil
	}
	return fmt.Errorf("-o %s: must be wide, json or yaml", o)
}

// Raw reports whether the response is printed unchanged.
func (o OutputFlag) Raw() bool { return o == outputJSON || o == outputYAML }

// PrintRaw prints a JSON document as JSON or YAML.
func (o OutputFlag) PrintRaw(w io.Writer, document []byte) error {
	if o == outputYAML {
		text, err := yaml.JSONToYAML(shown(document)) // it refuses control characters that JSON does not escape
		if err != nil {
			return fmt.Errorf("write YAML: %w", err)
		}
		_, err = w.Write(text)
		return err
	}
	var value any
	if err := json.Unmarshal(document, &value); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "    ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// PrintRows prints a table: the columns' names, and rows of as many cells.
func PrintRows(w io.Writer, columns []string, rows [][]string) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, strings.Join(columns, "\t"))
	for _, row := range rows {
		fmt.Fprintln(table, strings.Join(Cells(row), "\t"))
	}
	return table.Flush()
}

// PrintTable prints a Table of the server, with the columns of lower priority
// where wide asks for them.
func PrintTable(w io.Writer, t *metav1.Table, wide bool) error {
	var columns []string
	var shown []int
	for i, c := range t.ColumnDefinitions {
		if c.Priority == 0 || wide {
			columns, shown = append(columns, strings.ToUpper(c.Name)), append(shown, i)
		}
	}
	rows := make([][]string, len(t.Rows))
	for i, r := range t.Rows {
		for _, at := range shown {
			cell := ""
			if at < len(r.Cells) {
				cell = fmt.Sprint(r.Cells[at])
			}
			rows[i] = append(rows[i], cell)
		}
	}
	return PrintRows(w, columns, rows)
}

// Plural returns a number with its noun.
func Plural(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "y") && !strings.HasSuffix(noun, "ey") && !strings.HasSuffix(noun, "ay"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(noun, "y"))
	case strings.HasSuffix(noun, "s"):
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// OneLine keeps a value inside its cell, or its line.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Cells returns the cells of a row, each of them one line.
func Cells(row []string) []string {
	out := make([]string, len(row))
	for i, cell := range row {
		out[i] = OneLine(cell)
	}
	return out
}

// OrNone returns a cell of a table: values separated by commas, or <none>.
func OrNone(values ...string) string {
	if s := strings.Join(values, ","); s != "" {
		return s
	}
	return "<none>"
}

// maxServedNames bounds the names in a message.
const maxServedNames = 10

// SomeNames returns the first names for a message.
func SomeNames(names []string) string {
	switch n := len(names); {
	case n == 0:
		return "nothing"
	case n > maxServedNames:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxServedNames], ", "), n-maxServedNames)
	}
	return strings.Join(names, ", ")
}
