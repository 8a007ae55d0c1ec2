package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// diagnoseTimeout bounds the diagnosis of one endpoint.
const diagnoseTimeout = 3 * time.Second

// alertTimeout is how long connect waits for the reason of a refusal.
const alertTimeout = time.Second

// EndpointError is why one endpoint of etcd cannot be used.
type EndpointError struct {
	Endpoint string
	Err      error
	// Lasting reports that another attempt fails in the same way until the configuration or
	// the server changes: a certificate is refused, the server is no etcd.
	Lasting bool
}

func (e *EndpointError) Error() string { return e.Endpoint + ": " + e.Err.Error() }
func (e *EndpointError) Unwrap() error { return e.Err }

// Diagnose connects to each endpoint of cfg, at the same time, and reads one key below the
// prefix. It returns nil if one of them answers, within 3 seconds; else an error that joins an
// *EndpointError for each, with the cause and what to do.
func Diagnose(ctx context.Context, cfg Config) error {
	if err := cfg.Check(); err != nil {
		return err
	}
	tlsConfig, err := cfg.tls()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, diagnoseTimeout)
	defer cancel()
	results := make(chan *EndpointError, len(cfg.Endpoints))
	for _, endpoint := range cfg.Endpoints {
		go func() { results <- diagnose(ctx, &cfg, endpoint, tlsConfig) }()
	}
	byEndpoint := map[string]error{}
	for range cfg.Endpoints {
		problem := <-results
		if problem == nil {
			return nil
		}
		byEndpoint[problem.Endpoint] = problem
	}
	var problems []error
	for _, endpoint := range cfg.Endpoints {
		problems = append(problems, byEndpoint[endpoint])
	}
	return joined(problems)
}

// joined is several errors in one line.
type joined []error

func (j joined) Error() string {
	var texts []string
	for _, err := range j {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

func (j joined) Unwrap() []error { return j }

// Lasting reports whether all problems of an error of Diagnose are lasting ones.
func Lasting(err error) bool {
	var all joined
	if !errors.As(err, &all) {
		return err != nil // the configuration is wrong
	}
	for _, err := range all {
		var problem *EndpointError
		if !errors.As(err, &problem) || !problem.Lasting {
			return false
		}
	}
	return true
}

// diagnose tries one endpoint: a connection, TLS, and a read.
func diagnose(ctx context.Context, cfg *Config, endpoint string, tlsConfig *tls.Config) *EndpointError {
	prefix := cleanPrefix(cfg.Prefix)
	if err := connect(ctx, cfg, endpoint, tlsConfig, 0); err != nil {
		advice, lasting := adviseConnect(err)
		return &EndpointError{endpoint, withAdvice(err, advice), lasting}
	}
	client, err := clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: []string{endpoint}, TLS: tlsConfig, Logger: zap.NewNop(), DialOptions: cfg.dialOptions(),
	})
	if err != nil {
		return &EndpointError{endpoint, err, true}
	}
	defer client.Close()
	// The connection's first error ends the read; clientv3 would repeat it.
	_, err = etcdserverpb.NewKVClient(client.ActiveConnection()).Range(ctx,
		&etcdserverpb.RangeRequest{Key: []byte(prefix), KeysOnly: true}, grpc.WaitForReady(false))
	if err == nil {
		return nil
	}
	if text := err.Error(); tlsConfig != nil && (strings.Contains(text, "broken pipe") || strings.Contains(text, "connection reset")) {
		if alert := connect(ctx, cfg, endpoint, tlsConfig, alertTimeout); alert != nil {
			err = alert
		}
	}
	advice, lasting, cause := adviseRead(ctx, err, prefix)
	return &EndpointError{endpoint, withAdvice(cause, advice), lasting}
}

// connect opens a connection and closes it. Errors of the operating system and of TLS are more
// exact than those of gRPC. It waits for an alert of TLS as long as listen: in TLS 1.3 a server
// refuses a certificate after the handshake, and a client that writes first may miss why.
func connect(ctx context.Context, cfg *Config, endpoint string, tlsConfig *tls.Config, listen time.Duration) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	network, address, dial := "tcp", u.Host, new(net.Dialer).DialContext
	if cfg.Dial != nil && u.Scheme != "unix" {
		dial = cfg.Dial
	}
	switch {
	case u.Scheme == "unix":
		network, address = "unix", u.Path
	case u.Port() == "":
		return errors.New("the port is missing, as in " + u.Scheme + "://" + u.Host + ":2379")
	}
	conn, err := dial(ctx, network, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if tlsConfig == nil {
		return nil
	}
	tlsConfig = tlsConfig.Clone()
	tlsConfig.ServerName = u.Hostname()
	secure := tls.Client(conn, tlsConfig)
	if err := secure.HandshakeContext(ctx); err != nil || listen == 0 {
		return err
	}
	if err := secure.SetReadDeadline(time.Now().Add(listen)); err != nil {
		return err
	}
	if _, err := secure.Read(make([]byte, 1)); err != nil && strings.Contains(err.Error(), "tls: ") {
		return err
	}
	return nil
}

func withAdvice(err error, advice string) error {
	if advice == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, advice)
}

// adviseConnect returns the remedy for an error of connect, and whether it is lasting.
func adviseConnect(err error) (advice string, lasting bool) {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &unknown):
		return "name the file of the authority that issued it with --etcd-cafile", true
	case errors.As(err, &host), errors.As(err, &invalid):
		return "etcd needs another certificate, or the URL another host", true
	case errors.As(err, &record):
		return "the server does not speak TLS; use http:// if that is intended", true
	case strings.HasPrefix(err.Error(), "the port is missing"):
		return "", true
	}
	return "is etcd running there?", false
}

// adviseRead returns the remedy for a failed read, whether it is lasting, and its cause without
// gRPC's words.
func adviseRead(ctx context.Context, err error, prefix string) (advice string, lasting bool, cause error) {
	text := status.Convert(err).Message()
	// connection error: desc = "…"
	if _, desc, ok := strings.Cut(text, `desc = "`); ok {
		text = strings.TrimSuffix(desc, `"`)
	}
	cause = errors.New(text)
	switch code := errorCode(err); {
	case strings.Contains(text, "no application protocol"):
		return "the server is no etcd", true, cause
	case strings.Contains(text, "tls: "):
		return "give a client certificate that etcd accepts with --etcd-certfile and --etcd-keyfile", true, cause
	case code == codes.PermissionDenied, code == codes.Unauthenticated, code == codes.InvalidArgument:
		return "its user may not read " + prefix + ": see \"Several machines\" in docs/operations.md for the rights, and give its certificate with --etcd-certfile", true, cause
	case code == codes.Unimplemented, strings.Contains(text, "HTTP/1.1 header"), strings.Contains(text, "unexpected HTTP status code"),
		strings.Contains(text, "server preface"):
		return "the server is no etcd, or speaks TLS (use https://)", true, cause
	case ctx.Err() != nil:
		return "has the cluster a leader?", false, fmt.Errorf("no answer within %v", diagnoseTimeout)
	}
	return "", false, cause
}
