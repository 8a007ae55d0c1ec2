package certs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"portico/cmd/internal/datadir"
	"portico/cmd/internal/pki"
	"portico/cmd/portico/cli"
)

const (
	rotateLong = `Replace the authorities of "portico up", its certificates and the key of service-account tokens now, instead of when half of
their lifetime is left. No request is refused meanwhile: the new authorities are trusted at once, and sign after a twentieth of
their lifetime, an hour at most. The earlier ones are trusted until they end, so that kubeconfigs of before work; --retire ends
that. A replacement that is under way goes on, and no other one begins.

If "portico up" does not run, it does so when it starts.`

	rotateExample = `  # replace the authorities
  portico certs rotate

  # once no client has a kubeconfig or a certificate of before
  portico certs rotate --retire`

	// rotatePatience is how long "portico up" may take to do what is requested: it looks each second.
	rotatePatience = 30 * time.Second
	rotatePoll     = 100 * time.Millisecond
)

func newCertsRotate() *cobra.Command {
	var dataDir string
	var retire bool
	cmd := &cobra.Command{
		Use:     "rotate",
		Short:   "Replace the authorities of \"portico up\", with an overlap",
		Long:    rotateLong,
		Example: rotateExample,
		Args:    cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if dataDir == "" {
				if dataDir, err = datadir.Default(); err != nil {
					return fmt.Errorf("%w; name one with --data-dir", err)
				}
			}
			return rotate(cmd.Context(), cmd.OutOrStdout(), dataDir, retire)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&dataDir, "data-dir", "", "data `folder` of the installation (default: $XDG_DATA_HOME/portico or ~/.local/share/portico)")
	fs.BoolVar(&retire, "retire", false, "end the trust in the authorities that have been replaced, and in what they signed")
	return cmd
}

// rotate requests a replacement, or the end of the last one, and waits until "portico up" has done so.
func rotate(ctx context.Context, out io.Writer, dataDir string, retire bool) error {
	if err := datadir.CheckAccess(dataDir); err != nil {
		return err
	}
	dir := filepath.Join(dataDir, datadir.PKIFolder)
	before, err := pki.Replacements(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s has no authorities of \"portico up\"; name the data folder of an installation with --data-dir", dir)
	case err != nil:
		return err
	}
	request := pki.ReplaceAuthorities
	if retire {
		request = pki.RetireAuthorities
	}
	for _, r := range before {
		switch {
		case retire && !r.UsedFrom.IsZero():
			return fmt.Errorf("--retire: a replacement is under way, and the next %s signs from %s on; retire the earlier one then", r.Name, r.UsedFrom.Local().Format(time.RFC3339))
		case !retire && r.UsedFrom.IsZero() && len(r.Earlier) >= pki.MaxEarlier:
			return fmt.Errorf("%d earlier certificates of %s are trusted, and clients verify no longer chains; end the trust in them first, with --retire", len(r.Earlier), r.Name)
		}
	}
	if err := request.Request(dir); err != nil {
		return err
	}
	pid := datadir.Holder(dataDir)
	if pid == 0 {
		_, err := fmt.Fprintln(out, "\"portico up\" does not run; it does this when it starts.")
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, rotatePatience)
	defer cancel()
	for request.Pending(dir) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("process %d, which has the data folder, has not done it; see the output of \"portico up\"", pid)
		case <-time.After(rotatePoll):
		}
	}
	now, err := pki.Replacements(dir)
	if err != nil {
		return err
	}
	return printReplacements(out, now, time.Now())
}

func printReplacements(out io.Writer, all []pki.Replacement, now time.Time) error {
	left := func(t time.Time) string { return duration.HumanDuration(t.Sub(now)) }
	var rows [][]string
	for _, r := range all {
		next, earlier := "", []string(nil)
		if !r.UsedFrom.IsZero() {
			next = "in " + left(r.UsedFrom)
		}
		for _, end := range r.Earlier {
			earlier = append(earlier, left(end))
		}
		rows = append(rows, []string{r.Name, left(r.Ends), cli.OrNone(next), cli.OrNone(earlier...)})
	}
	return cli.PrintRows(out, []string{"AUTHORITY", "GOOD FOR", "NEXT SIGNS", "EARLIER TRUSTED FOR"}, rows)
}
