package main

import (
	"crypto/x509"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	certutil "k8s.io/client-go/util/cert"
)

const certsShowExample = `  portico certs show for-core/*.crt

  # of an installation of portico up
  portico certs show ~/.local/share/portico/pki/*.crt`

func newCertsShow() *cobra.Command {
	return &cobra.Command{
		Use:     "show FILE...",
		Short:   "Show subject, hosts, use, issuer and remaining lifetime of certificates",
		Example: certsShowExample,
		Args:    arguments(1, math.MaxInt, "for-core/*.crt"),
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
				file, orNone(c.Subject.CommonName), orNone(c.Subject.Organization...), orNone(hostsOf(c)...), useOf(c),
				orNone(c.Issuer.CommonName), goodFor(c, now),
			})
		}
	}
	return printRows(w, []string{"FILE", "FOR", "GROUPS", "HOSTS", "USE", "BY", "GOOD FOR"}, rows)
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
	return orNone(uses...)
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

// orNone returns a cell of a table: values separated by commas, or <none>.
func orNone(values ...string) string {
	if s := strings.Join(values, ","); s != "" {
		return s
	}
	return "<none>"
}
