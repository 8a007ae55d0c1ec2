package certs

import (
	"crypto/x509"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	certutil "k8s.io/client-go/util/cert"

	"portico/cmd/portico/cli"
)

const certsShowExample = `  portico certs show for-core/*.crt

  # of an installation of portico up
  portico certs show ~/.local/share/portico/pki/*.crt`

func newCertsShow() *cobra.Command {
	return &cobra.Command{
		Use:     "show FILE...",
		Short:   "Show subject, hosts, use, issuer and remaining lifetime of certificates",
		Example: certsShowExample,
		Args:    cli.Arguments(1, math.MaxInt, "for-core/*.crt"),
		RunE: func(cmd *cobra.Command, files []string) error {
			return showCertificates(cmd.OutOrStdout(), files, time.Now())
		},
	}
}

// showCertificates prints a row for each certificate of each file.
func showCertificates(w io.Writer, files []string, now time.Time) error {
	var rows [][]string
	for _, file := range files {
		certs, err := certutil.CertsFromFile(file)
		if err != nil {
			return err
		}
		for _, c := range certs {
			rows = append(rows, []string{
				file, cli.OrNone(c.Subject.CommonName), cli.OrNone(c.Subject.Organization...), cli.OrNone(hostsOf(c)...), useOf(c),
				cli.OrNone(c.Issuer.CommonName), goodFor(c, now),
			})
		}
	}
	return cli.PrintRows(w, []string{"FILE", "FOR", "GROUPS", "HOSTS", "USE", "BY", "GOOD FOR"}, rows)
}

func hostsOf(c *x509.Certificate) []string {
	hosts := append([]string(nil), c.DNSNames...)
	for _, ip := range c.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

func useOf(c *x509.Certificate) string {
	if c.IsCA {
		return "authority"
	}
	var uses []string
	for _, u := range c.ExtKeyUsage {
		switch u {
		case x509.ExtKeyUsageServerAuth:
			uses = append(uses, "server")
		case x509.ExtKeyUsageClientAuth:
			uses = append(uses, "client")
		}
	}
	return cli.OrNone(uses...)
}

func goodFor(c *x509.Certificate, now time.Time) string {
	switch {
	case now.After(c.NotAfter):
		return "expired " + duration.HumanDuration(now.Sub(c.NotAfter)) + " ago"
	case now.Before(c.NotBefore):
		return "not before " + c.NotBefore.Local().Format(time.RFC3339)
	}
	return duration.HumanDuration(c.NotAfter.Sub(now))
}
