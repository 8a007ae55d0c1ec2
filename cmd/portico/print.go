package main

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

// outputFlag is -o.
type outputFlag string

const (
	outputTable outputFlag = ""
	outputWide  outputFlag = "wide"
	outputJSON  outputFlag = "json"
	outputYAML  outputFlag = "yaml"
)

func (o *outputFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP((*string)(o), "output", "o", "", "output `format`: wide, json or yaml (default: a table)")
}

func (o outputFlag) check() error {
	switch o {
	case outputTable, outputWide, outputJSON, outputYAML:
		return nil
	}
	return fmt.Errorf("-o %s: must be wide, json or yaml", o)
}

// raw reports whether the response is printed unchanged.
func (o outputFlag) raw() bool { return o == outputJSON || o == outputYAML }

// printRaw prints a JSON document as JSON or YAML.
func (o outputFlag) printRaw(w io.Writer, document []byte) error {
	if o == outputYAML {
		text, err := yaml.JSONToYAML(document)
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

// printRows prints a table: the columns' names, and rows of as many cells.
func printRows(w io.Writer, columns []string, rows [][]string) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, strings.Join(columns, "\t"))
	for _, row := range rows {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	return table.Flush()
}

// printTable prints a Table of the server, with the columns of lower priority
// where wide asks for them.
func printTable(w io.Writer, t *metav1.Table, wide bool) error {
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
				cell = oneLine(fmt.Sprint(r.Cells[at]))
			}
			rows[i] = append(rows[i], cell)
		}
	}
	return printRows(w, columns, rows)
}

// oneLine keeps a value inside its cell.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
