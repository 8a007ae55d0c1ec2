package server

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/net/http/httpguts"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	cliflag "k8s.io/component-base/cli/flag"

	"portico/backends/core"
	"portico/cmd/portico/config"
	"portico/resource/etcd"
	"portico/resource/masterlease"
	"portico/resource/serve"
	"portico/resource/serve/filter"
)

// companion is a flag that has no effect without one of others. It applies to commands that have
// the flag and one of the others.
type companion struct {
	flag   string
	others []string
	why    string
}

var companions = []companion{
	{"etcd-certfile", []string{"etcd-keyfile"}, "a certificate needs its key"},
	{"etcd-keyfile", []string{"etcd-certfile"}, "a key needs its certificate"},
	{"etcd-cafile", []string{"etcd-servers"}, "the embedded etcd has no certificate"},
	{"etcd-certfile", []string{"etcd-servers"}, "the embedded etcd takes no certificate"},
	{"encryption-provider-config-automatic-reload", []string{"encryption-provider-config"}, "there is no file to read again"},
	{"tls-cert-file", []string{"tls-private-key-file"}, "a certificate needs its key"},
	{"tls-private-key-file", []string{"tls-cert-file"}, "a key needs its certificate"},
	{"gateway-cert-file", []string{"gateway"}, "it is shown to the gateway"},
	{"gateway-ca-file", []string{"gateway"}, "it verifies the gateway"},
	{"kubelet-client-certificate", []string{"kubelet-client-key"}, "a certificate needs its key"},
	{"kubelet-client-key", []string{"kubelet-client-certificate"}, "a key needs its certificate"},
	{"client-crl-file", []string{"client-ca-file"}, "no client certificate is accepted"},
	{"requestheader-allowed-names", []string{"requestheader-client-ca-file"}, "no front proxy is trusted without its CA"},
	{"requestheader-username-headers", []string{"requestheader-client-ca-file"}, "no front proxy is trusted without its CA"},
	{"requestheader-uid-headers", []string{"requestheader-client-ca-file"}, "no front proxy is trusted without its CA"},
	{"requestheader-group-headers", []string{"requestheader-client-ca-file"}, "no front proxy is trusted without its CA"},
	{"requestheader-extra-headers-prefix", []string{"requestheader-client-ca-file"}, "no front proxy is trusted without its CA"},
	{"service-account-jwks-uri", []string{"service-account-issuer"}, "there is no discovery document"},
	{"service-account-issuer", []string{"service-account-key-file", "service-account-signing-key-file"}, "no token of the issuer could be verified or signed"},
	{"service-account-key-file", []string{"service-account-issuer"}, "no token would be accepted"},
	{"service-account-signing-key-file", []string{"service-account-issuer"}, "no token could be issued"},
	{"audit-policy-file", []string{"audit-log-path", "audit-webhook-config-file"}, "events would go nowhere"},
	{"audit-log-path", []string{"audit-policy-file"}, "nothing would be audited"},
	{"audit-webhook-config-file", []string{"audit-policy-file"}, "nothing would be audited"},
}

// forms are checks of values. A check returns what is wrong.
var forms = map[string]func(value string) string{
	webhookPrefix + "version": func(value string) string {
		if value != "v1" && value != "v1beta1" {
			return "must be v1 or v1beta1"
		}
		return ""
	},
	"etcd-prefix": func(value string) string {
		if !strings.HasPrefix(value, "/") {
			return "must begin with a slash, as in /registry"
		}
		return ""
	},
	"etcd-servers": problem(etcd.CheckEndpoint),
	"advertise-address": func(value string) string {
		if _, ok := masterlease.Parse(value); !ok {
			return "must be an IP address that clients reach, and a port, as in 192.0.2.1:6443"
		}
		return ""
	},
	"goaway-chance": func(value string) string {
		if chance, err := strconv.ParseFloat(value, 64); err == nil && (chance < 0 || chance > filter.MaxGoawayChance) {
			return fmt.Sprintf("must be between 0 and %v", filter.MaxGoawayChance)
		}
		return ""
	},
	"requestheader-username-headers":     headerName,
	"requestheader-uid-headers":          headerName,
	"requestheader-group-headers":        headerName,
	"requestheader-extra-headers-prefix": headerName,
	"service-account-issuer": func(value string) string {
		if _, err := url.Parse(value); strings.Contains(value, ":") && err != nil {
			return "has a colon and is not a URL"
		}
		return ""
	},
	"service-account-jwks-uri": func(value string) string {
		if u, err := url.Parse(value); err != nil || u.Scheme != "https" || u.Host == "" {
			return "must be a URL with https and a host, as in https://keys.example.com/openid/v1/jwks"
		}
		return ""
	},
	"service-account-max-token-expiration": func(value string) string {
		if longest, err := time.ParseDuration(value); err != nil || longest < core.MinMaxTokenExpiration {
			return fmt.Sprintf("must be at least %v", core.MinMaxTokenExpiration)
		}
		return ""
	},
	"service-node-port-range": func(value string) string {
		if _, err := utilnet.ParsePortRange(value); err != nil {
			return "must have the form first-last, as in 30000-32767"
		}
		return ""
	},
	"tls-min-version": func(value string) string {
		if _, err := cliflag.TLSVersion(value); err != nil {
			return err.Error() + "; possible values: " + strings.Join(cliflag.TLSPossibleVersions(), ", ")
		}
		return ""
	},
	"tls-cipher-suites":                    problem(func(value string) error { _, err := cliflag.TLSCipherSuites([]string{value}); return err }),
	"tls-sni-cert-key":                     problem(new(cliflag.NamedCertKey).Set),
	"cors-allowed-origins":                 problem(filter.CheckOrigin),
	"strict-transport-security-directives": problem(filter.CheckStrictTransport),
	"max-request-header-bytes": func(value string) string {
		if n, err := strconv.ParseUint(value, 10, 31); err != nil || n < leastHeader {
			return fmt.Sprintf("must be at least %d", leastHeader)
		}
		return ""
	},
	"listen": func(value string) string {
		if path, ok := strings.CutPrefix(value, "unix://"); ok && !strings.HasPrefix(path, "/") {
			return "the path of a socket must be absolute, as in unix:///run/portico/core.sock"
		}
		return ""
	},
}

// problem makes a check of a function that returns an error.
func problem(check func(string) error) func(string) string {
	return func(value string) string {
		if err := check(value); err != nil {
			return err.Error()
		}
		return ""
	}
}

// headerName checks a name, or the prefix of a name, of a header.
func headerName(value string) string {
	if !httpguts.ValidHeaderFieldName(value) {
		return "must be names of headers, separated by commas, as in X-Forwarded-User"
	}
	return ""
}

// CheckFlags returns values of flags that could not work, and flags that would have no effect.
func CheckFlags(fs *pflag.FlagSet) (wrong []error) {
	fs.Visit(func(f *pflag.Flag) { wrong = append(wrong, checkFlag(fs, f)) })
	return append(wrong, checkSeats(fs))
}

// checkFlag checks a flag that was given.
func checkFlag(fs *pflag.FlagSet, f *pflag.Flag) error {
	if err := CheckValue(f); err != nil {
		return err
	}
	if err := checkIssuers(fs, f); err != nil {
		return err
	}
	given := strings.Trim(f.Value.String(), "[]") != ""
	for _, row := range slices.Concat(companions, pair(f.Name), issuerCompanions(f.Name)) {
		if row.flag == f.Name && given && !anyGiven(fs, row.others) {
			return &config.MissingError{Flags: row.others, Err: fmt.Errorf("--%s without --%s: %s", f.Name, strings.Join(row.others, " or --"), row.why)}
		}
	}
	return nil
}

// refused returns the refusals of a process: of its flags, and errs of its configuration.
func refused(fs *pflag.FlagSet, errs ...error) error {
	for i, err := range errs {
		if errors.Is(err, serve.ErrNoCertificate) {
			errs[i] = &config.MissingError{Flags: []string{"tls-cert-file", "tls-private-key-file"}, Err: err}
		}
	}
	return config.Refused(append(CheckFlags(fs), errs...)...)
}

// CheckValue refuses a value of a flag that could not work, whatever the other flags are.
func CheckValue(f *pflag.Flag) error {
	value := f.Value.String()
	if f.Value.Type() == "duration" {
		if d, err := time.ParseDuration(value); err == nil && d < 0 {
			return fmt.Errorf("--%s=%s: must not be negative", f.Name, value)
		}
	}
	values := []string{value}
	list, isList := f.Value.(pflag.SliceValue)
	if isList {
		values = list.GetSlice()
	}
	if check := forms[f.Name]; check != nil {
		for _, value := range values {
			if problem := check(value); (value != "" || isList) && problem != "" {
				return fmt.Errorf("--%s=%s: %s", f.Name, value, problem)
			}
		}
	}
	return nil
}

// pair returns the companion of a certificate or a key, by the name of its flag.
func pair(name string) []companion {
	if other, ok := strings.CutSuffix(name, "-cert-file"); ok && name != "tls-cert-file" {
		return []companion{{name, []string{other + "-key-file"}, "a certificate needs its key"}}
	}
	if other, ok := strings.CutSuffix(name, "-key-file"); ok {
		return []companion{{name, []string{other + "-cert-file"}, "a key needs its certificate"}}
	}
	return nil
}

// anyGiven reports whether one of the flags has a value, or the command has none of them.
func anyGiven(fs *pflag.FlagSet, names []string) bool {
	known := false
	for _, name := range names {
		if f := fs.Lookup(name); f != nil {
			if text := strings.Trim(f.Value.String(), "[]"); text != "" {
				return true
			}
			known = true
		}
	}
	return !known
}
