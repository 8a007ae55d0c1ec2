// Package probe is the command portico probe: a health check for images that hold nothing
// but portico.
//
// Runs in: portico probe.
package probe

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"portico/cmd/portico/cli"
	"portico/resource/egress"
)

const (
	long = `Send a GET request to a URL, and succeed if the answer is 2xx. It is for the health checks of containers, since the image
has no other client; redirects are not followed. --probe-listen of portico gateway, core and crd is an address for it.`

	example = `  # of a process with --probe-listen=0.0.0.0:8080
  portico probe http://127.0.0.1:8080/readyz`
)

// maxReason bounds the text of an answer that is shown, in bytes.
const maxReason = 1024

// New returns the command.
func New() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:     "probe URL",
		Short:   "Ask whether a process is healthy, by a URL",
		Long:    long,
		Example: example,
		Args:    cli.Arguments(1, 1, "http://127.0.0.1:8080/readyz"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout <= 0 {
				return errors.New("--timeout must be positive, such as 3s")
			}
			u, err := url.Parse(args[0])
			if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
				return fmt.Errorf("%q: must be a URL, as in http://127.0.0.1:8080/readyz", args[0])
			}
			return get(egress.Client(nil, timeout), cmd, u.String())
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 3*time.Second, "`time` after which the process counts as unhealthy")
	return cmd
}

// get returns an error with the first bytes of the answer unless that is 2xx.
func get(client *http.Client, cmd *cobra.Command, url string) error {
	req, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	began := time.Now()
	resp, err := client.Do(req)
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() && time.Since(began) >= client.Timeout {
		return fmt.Errorf("probe %s: no answer within %v (--timeout)", url, client.Timeout)
	}
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 == 2 {
		return nil
	}
	reason, _ := io.ReadAll(io.LimitReader(resp.Body, maxReason)) // what there is
	return fmt.Errorf("probe %s: %s: %s", url, resp.Status, cli.OrNone(cli.OneLine(strings.ToValidUTF8(string(reason), "?"))))
}
