package adopt

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"portico/cmd/portico/cli"
)

// Report is the state of an etcd before it is adopted.
type Report struct {
	Resources []Row `json:"resources"`
	// Problems are reasons not to adopt, Changes what adoption writes, and Notes what to give
	// portico up, and what to know.
	Problems []string `json:"problems,omitempty"`
	Changes  []string `json:"changes,omitempty"`
	Notes    []string `json:"notes,omitempty"`
}

// unsafe are the outcomes that spoil lists of a resource and the deletion of namespaces: what is
// wrong, and what to do.
var unsafe = map[Outcome][2]string{
	outcomeEncrypted: {"encrypted", "name the configuration of kube-apiserver with --encryption-provider-config, here and when Portico is started"},
	outcomeVersion:   {"in a version that Portico does not have", "let kube-apiserver write them again"},
	outcomeDamaged:   {"that cannot be decoded", "restore or delete them with etcdctl"},
}

// report describes what the survey found. live is false for a snapshot.
func (s *survey) report(live bool, a *adoption) *Report {
	r := &Report{Resources: s.table(), Problems: s.facts.problems(live), Changes: a.changes(), Notes: s.facts.notes()}
	for _, row := range r.Resources {
		if u, found := unsafe[row.Outcome]; found {
			r.Problems = append(r.Problems, fmt.Sprintf("%s: %d %s, such as %s: %s", row.Resource, row.Objects, u[0], row.Example, u[1]))
		}
	}
	if len(r.Resources) == 0 {
		r.Problems = append(r.Problems, "etcd has no keys below the prefix: is --etcd-prefix another one?")
	}
	return r
}

func (o *options) print(w io.Writer, r *Report) error {
	if o.out.Raw() {
		document, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("encode report: %w", err)
		}
		return o.out.PrintRaw(w, document)
	}
	columns := []string{"RESOURCE", "VERSION", "OBJECTS", "WHAT HAPPENS"}
	if o.out == cli.OutputWide {
		columns = append(columns, "ENCODING", "PATH", "EXAMPLE")
	}
	var rows [][]string
	for _, row := range r.Resources {
		what := texts[row.Outcome]
		if row.Note != "" {
			what += ": " + row.Note
		}
		cells := []string{row.Resource, cli.OrNone(row.Version), strconv.FormatInt(row.Objects, 10), cli.OneLine(what)}
		if o.out == cli.OutputWide {
			cells = append(cells, cli.OrNone(row.Encoding), row.Path, cli.OrNone(row.Example))
		}
		rows = append(rows, cells)
	}
	if err := cli.PrintRows(w, columns, rows); err != nil {
		return err
	}
	for _, part := range []struct {
		title string
		lines []string
	}{{"Problems", r.Problems}, {"To be written", r.Changes}, {"Notes", r.Notes}} {
		if len(part.lines) > 0 {
			fmt.Fprintf(w, "\n%s:\n", part.title)
		}
		for _, line := range part.lines {
			fmt.Fprintf(w, "  - %s\n", line)
		}
	}
	return nil
}
