package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"portico/cmd/portico/cli"
	"portico/cmd/portico/inspect"
)

const example = `  # everything that can be seen from here
  portico doctor

  # the installation of portico up with its data there, with the checks that write
  portico doctor --data-dir=./data --write

  # every check with what it looks at
  portico doctor -o wide`

// patience bounds all checks together.
const patience = 60 * time.Second

type options struct {
	inspect.Flags
	write bool
}

// New returns the command.
func New() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine an installation and say what to do",
		Long: fmt.Sprintf("Run %d checks of the machine, the data folder of portico up, the gateway, etcd, the servers behind the gateway and the\n", len(checks)) +
			"objects that can break an installation. Each is OK, WARN, FAIL, or SKIPPED with the reason, and comes with what to do.\n" +
			"They read only; --write allows those that write: a file in the data folder, which is removed, and a token that lives\n" +
			"ten minutes. Exit code 1 means that a check failed; warnings leave it 0.",
		Example: example,
	}
	cmd.Flags().BoolVar(&o.write, "write", false, "run the checks that write, too")
	return o.Command(cmd, o.run)
}

func (o *options) run(ctx context.Context, w, warnings io.Writer) error {
	gateway, folder, err := o.Open(warnings)
	if o.Folder.Path == "" || gateway == nil && folder == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	t := observe(ctx, gateway, folder, err)
	t.write = o.write
	results := t.examine(ctx, checks)
	if err := print(w, o.Out, results, nil); err != nil {
		return err
	}
	return verdictOf(results)
}

// verdictOf returns an error if a check failed.
func verdictOf(results []Result) error {
	if n := count(results, failed); n > 0 {
		return fmt.Errorf("%d of %d checks failed", n, len(results))
	}
	return nil
}

// Result is the outcome of one check.
type Result struct {
	Check   string  `json:"check"`
	What    string  `json:"what"`
	Verdict verdict `json:"verdict"`
	Found   string  `json:"found"`
	// Advice is for a check that warns or failed.
	Advice string `json:"advice,omitempty"`
}

// examine runs all checks of a table at the same time and returns the results in its order.
func (t *target) examine(ctx context.Context, checks []check) []Result {
	results := make([]Result, len(checks))
	var running sync.WaitGroup
	for i, c := range checks {
		running.Go(func() {
			f := c.run(ctx, t)
			results[i] = Result{Check: c.name, What: c.what, Verdict: f.verdict, Found: cli.OneLine(f.text)}
			if f.verdict == warns || f.verdict == failed {
				results[i].Advice = c.advice
			}
		})
	}
	running.Wait()
	return results
}

// skippedAs reports whether another check was skipped for the same reason.
func (r Result) skippedAs(other Result) bool {
	return r.Verdict == skipped && other.Verdict == skipped && r.Found == other.Found
}

// skippedAlike returns the checks that were skipped for the reason of one, which are a line together.
func skippedAlike(results []Result, of Result) (names []string) {
	for _, r := range results {
		if of.skippedAs(r) {
			names = append(names, r.Check)
		}
	}
	return names
}

func count(results []Result, v verdict) (n int) {
	for _, r := range results {
		if r.Verdict == v {
			n++
		}
	}
	return n
}

// print prints results; more are further fields of a document for programs.
func print(w io.Writer, out cli.OutputFlag, results []Result, more map[string]any) error {
	if out.Raw() {
		fields := map[string]any{"checks": results}
		maps.Copy(fields, more)
		document, err := json.Marshal(fields)
		if err != nil {
			return fmt.Errorf("encode results: %w", err)
		}
		return out.PrintRaw(w, document)
	}
	color := cli.Colored(w)
	for i, r := range results {
		name := r.Check
		if out == cli.OutputWide {
			name += " (" + r.What + ")"
		} else if names := skippedAlike(results, r); len(names) > 1 {
			if slices.ContainsFunc(results[:i], r.skippedAs) {
				continue
			}
			name = strings.Join(names, ", ")
		}
		fmt.Fprintf(w, "%s %s: %s\n", color(colors[r.Verdict], fmt.Sprintf("%-7s", r.Verdict)), name, cli.OneLine(r.Found))
		if r.Advice != "" {
			fmt.Fprintf(w, "        %s\n", cli.OneLine(r.Advice))
		}
	}
	_, err := fmt.Fprintf(w, "\n%d OK, %s, %d failed, %d skipped\n",
		count(results, good), cli.Plural(count(results, warns), "warning"), count(results, failed), count(results, skipped))
	return err
}
