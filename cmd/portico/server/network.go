package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"portico/cmd/portico/config"
	"portico/resource/serve"
	"portico/resource/serve/filter"
	"portico/resource/serve/inflight"
)

// NetworkFlags are the flags of TLS, HTTP/2 and connections of network addresses.
type NetworkFlags struct {
	minVersion  string
	ciphers     []string
	curves      []int32
	sni         []string
	streams     uint
	headerBytes uint
	sharePort   bool
	noHTTP2     bool
	bounds      inflight.Bounds
	all         *pflag.FlagSet
}

// Network are the names of flags of network addresses. Those of portico up are for the gateway: the
// other processes listen on sockets.
var Network = []string{
	"tls-min-version", "tls-cipher-suites", "tls-curve-preferences", "tls-sni-cert-key", "http2-max-streams-per-connection",
	"max-request-header-bytes", "max-connections", "max-unauthenticated-connections", "max-connections-per-address", sharing, disableHTTP2,
}

// Names of flags.
const (
	sharing      = "permit-port-sharing"
	disableHTTP2 = "disable-http2-serving"
)

// Add adds the flags. Flags of TLS and HTTP/2 have kube-apiserver's names. streams is the default number of requests on an
// HTTP/2 connection.
func (f *NetworkFlags) Add(fs *pflag.FlagSet, streams uint) {
	f.all = fs
	fs.StringVar(&f.minVersion, "tls-min-version", "", "least `version` of TLS: "+strings.Join(cliflag.TLSPossibleVersions(), ", ")+" (default: VersionTLS12)")
	fs.StringSliceVar(&f.ciphers, "tls-cipher-suites", nil, "comma-separated `names` of cipher suites of TLS 1.2 and below (default: Go's). Preferred: "+
		strings.Join(cliflag.PreferredTLSCipherNames(), ", ")+". Insecure: "+strings.Join(cliflag.InsecureTLSCipherNames(), ", "))
	fs.Int32SliceVar(&f.curves, "tls-curve-preferences", nil, "comma-separated `numbers` of key exchange mechanisms, CurveID of Go's crypto/tls (default: Go's)")
	fs.StringArrayVar(&f.sni, "tls-sni-cert-key", nil, "PEM `files` of a certificate and its key for some names, as cert,key or cert,key:name,*.name; without names those of the certificate. Named ones "+
		"are stronger than these, exact names than wildcards, earlier flags than later ones. May be repeated")
	fs.UintVar(&f.streams, "http2-max-streams-per-connection", streams, "maximum `number` of concurrent requests on an HTTP/2 connection; 0 means the default")
	fs.UintVar(&f.headerBytes, "max-request-header-bytes", serve.DefaultMaxHeaderBytes, "maximum size of the header of a request in `bytes`; more is answered 431, or ends the connection. Not for unix sockets")
	fs.BoolVar(&f.sharePort, sharing, false, "let other processes of this user, with this flag too, listen on the same host:port, SO_REUSEPORT (default: one process only)")
	fs.UintVar(&f.bounds.All, "max-connections", 0, "maximum `number` of connections of network clients (default: by the number of files that the process may open)")
	fs.UintVar(&f.bounds.Unauthenticated, "max-unauthenticated-connections", 0, "maximum `number` of them on which no user is authenticated (default: a twelfth, 512 at most)")
	fs.UintVar(&f.bounds.PerAddress, "max-connections-per-address", 0, "maximum `number` of them from one IP address, or one IPv6 network of 64 bits; more are closed (default: no limit)")
}

// AddHTTP2 adds the flag that switches HTTP/2 off, for the gateway: it uses HTTP/2 itself towards core and CRD server.
func (f *NetworkFlags) AddHTTP2(fs *pflag.FlagSet) {
	fs.BoolVar(&f.noHTTP2, disableHTTP2, false, "serve HTTP/1.1 only on network addresses (default: HTTP/2 too)")
}

// given returns the name of a flag that was given to this process, and has no effect on unix sockets; ""
// without.
func (f *NetworkFlags) given() string {
	for _, name := range Network {
		if flag := f.all.Lookup(name); name != "http2-max-streams-per-connection" && flag != nil && flag.Changed && config.SourceOf(flag).Section != config.All {
			return name
		}
	}
	return ""
}

// SharesPort reports whether other processes may listen on the addresses, which have the form of --listen. It is an error if the
// flag, given to this process, has no effect on any.
func (f *NetworkFlags) SharesPort(addresses []string) (bool, error) {
	for _, address := range addresses {
		if !strings.HasPrefix(address, "unix://") && !strings.HasPrefix(address, "systemd:") {
			return f.sharePort, nil
		}
	}
	if f.sharePort && config.SourceOf(f.all.Lookup(sharing)).Section != config.All {
		return false, fmt.Errorf("--%s has no effect: --listen names no host:port; leave it out", sharing)
	}
	return false, nil
}

// set completes an address.
func (f *NetworkFlags) set(to *serve.ListenAddress) (err error) {
	if to.MaxConcurrentStreams = uint32(f.streams); f.streams > maxStreams {
		return fmt.Errorf("--http2-max-streams-per-connection=%d: must be at most %d", f.streams, maxStreams)
	}
	to.MaxHeaderBytes, to.SharePort, to.DisableHTTP2 = int(f.headerBytes), f.sharePort, f.noHTTP2
	if to.TLS.MinVersion, err = cliflag.TLSVersion(f.minVersion); err != nil {
		return fmt.Errorf("--tls-min-version: %w", err)
	}
	if to.TLS.CipherSuites, err = cliflag.TLSCipherSuites(f.ciphers); err != nil {
		return fmt.Errorf("--tls-cipher-suites: %w", err)
	}
	if len(f.curves) > 0 {
		if to.TLS.CurvePreferences, err = cliflag.TLSCurvePreferences(f.curves); err != nil {
			return fmt.Errorf("--tls-curve-preferences: %w", err)
		}
	}
	for _, value := range f.sni {
		var named cliflag.NamedCertKey
		if err := named.Set(value); err != nil {
			return fmt.Errorf("--tls-sni-cert-key=%s: %w", value, err)
		}
		to.TLS.SNI = append(to.TLS.SNI, serve.NamedCertificate{CertFile: named.CertFile, KeyFile: named.KeyFile, Names: named.Names})
	}
	return nil
}

// maxStreams and leastHeader are bounds of flags.
const (
	maxStreams  = 1 << 16
	leastHeader = 4 << 10
)

// Check returns what is wrong with the flags, and with flags that would have no effect. It needs no file.
func (f *NetworkFlags) Check() error {
	var address serve.ListenAddress
	if err := f.set(&address); err != nil {
		return err
	}
	if _, err := f.bounds.Limits(); err != nil {
		return err
	}
	for _, name := range []string{"http2-max-streams-per-connection", "goaway-chance"} {
		if flag := f.all.Lookup(name); f.noHTTP2 && flag != nil && flag.Changed && config.SourceOf(flag).Section != config.All {
			return fmt.Errorf("--%s has no effect with --%s; leave one of them out", name, disableHTTP2)
		}
	}
	suites := address.TLS.CipherSuites
	if len(suites) == 0 {
		return nil
	}
	if address.TLS.MinVersion == tls.VersionTLS13 {
		return errors.New("--tls-cipher-suites has no effect with --tls-min-version=VersionTLS13: TLS 1.3 has cipher suites of its own; leave one of them out")
	}
	// Without one of these net/http does not serve HTTP/2 (RFC 9113, 9.2.2).
	if !slices.Contains(suites, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256) && !slices.Contains(suites, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256) {
		return errors.New("--tls-cipher-suites: HTTP/2 needs TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 or TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256; add the one of your key")
	}
	return nil
}

// AddEgress adds --egress-selector-config-file.
func AddEgress(fs *pflag.FlagSet, to *string) {
	fs.StringVar(to, "egress-selector-config-file", "", "`file` with an EgressSelectorConfiguration, as for kube-apiserver: the proxies for connections to controlplane, etcd and cluster (default: none)")
}

// Browser are the names of the flags of AddBrowser.
var Browser = []string{"cors-allowed-origins", "strict-transport-security-directives"}

// AddBrowser adds the flags of what responses tell browsers, which have kube-apiserver's names.
func AddBrowser(fs *pflag.FlagSet, to *filter.Browser) {
	fs.StringSliceVar(&to.AllowedOrigins, "cors-allowed-origins", nil, "comma-separated regular `expressions` of the origins from which scripts may read responses, as '^https://example\\.com(:|$)', "+
		"with the begin and the end of the host (default: none)")
	fs.StringSliceVar(&to.StrictTransport, "strict-transport-security-directives", nil, "comma-separated `directives` of the header Strict-Transport-Security, as max-age=31536000,includeSubDomains,preload (default: none)")
}
