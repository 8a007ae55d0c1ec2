package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

const (
	// DefaultPrefix is where objects live in etcd.
	DefaultPrefix = "/registry"

	// callTimeout bounds a read or write of one key and the read of one page of a range.
	// etcd's own limit is about 7 s.
	callTimeout = 10 * time.Second

	// A connection that receives nothing for keepAliveTime is probed, and closed if the
	// probe is not answered within keepAliveTimeout. gRPC does not probe more often.
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 10 * time.Second

	// dialTimeout is the minimum timeout of an attempt to connect.
	dialTimeout = 5 * time.Second

	// The pause between attempts to connect grows from minReconnect to maxReconnect. With
	// gRPC's default of 2 min a process would not notice for long that etcd is back.
	minReconnect = 50 * time.Millisecond
	maxReconnect = time.Second

	// Flow control windows of a stream and of a connection. They are fixed, because gRPC's
	// estimation of them costs a ping for nearly every write.
	streamWindow = 4 << 20
	connWindow   = 16 << 20
)

// Config is the configuration of a Client.
type Config struct {
	// Endpoints are "unix:///path", "http://host:port" or
	// "https://host:port", all of the same scheme. At least one.
	Endpoints []string
	// CAFile has the CA certificates of https endpoints; "" means the system's.
	CAFile string
	// CertFile and KeyFile are the client certificate; both or none. They are read for
	// every connection, so that a renewed certificate is used.
	CertFile, KeyFile string
	// Prefix precedes every storage path; "" means DefaultPrefix.
	Prefix string
	// Transformer encrypts values; nil stores them unencrypted.
	Transformer Transformer
	// Trace is called after each request with its context, kube-apiserver's name of the
	// operation, the resource ("" for none), the start and the error. May be nil.
	Trace func(ctx context.Context, operation, group, resource string, start time.Time, err error)
	// Dial connects to host:port of http and https endpoints; nil: directly.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Logger logs errors that are not returned; nil means slog.Default().
	Logger *slog.Logger

	checkEvery time.Duration // of tests; 0 means checkEvery
}

// Client is a connection to one etcd cluster. Safe for concurrent use.
type Client struct {
	etcd        *clientv3.Client
	writes      etcdserverpb.KVClient
	callOptions []grpc.CallOption // of writes, as etcd's client has them
	prefix      string            // ends with a slash
	transformer Transformer
	resources   sync.Map // schema.GroupResource by storage path, of stores
	log         *slog.Logger
	timeout     time.Duration      // callTimeout
	stop        context.CancelFunc // ends the client's goroutines
	breaker     *breaker
	revision    *sharedRevision
	metrics     *metrics
	scope       scope // of requests for no resource
	recent      recentWrites
	leases      *leases
}

// Open returns a client. It checks the configuration and reads the certificates, but does
// not wait for etcd.
func Open(cfg Config) (*Client, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	tlsConfig, err := cfg.tls()
	if err != nil {
		return nil, fmt.Errorf("open etcd client: %w", err)
	}
	c := &Client{
		callOptions: []grpc.CallOption{grpc.WaitForReady(true), grpc.MaxCallSendMsgSize(math.MaxInt32)},
		prefix:      cleanPrefix(cfg.Prefix),
		transformer: cfg.Transformer,
		log:         cmp.Or(cfg.Logger, slog.Default()),
		timeout:     callTimeout,
		metrics:     newMetrics(cfg.Trace),
	}
	if c.transformer == nil {
		c.transformer = identity{}
	}
	var ctx context.Context
	ctx, c.stop = context.WithCancel(context.Background())
	c.breaker = newBreaker(ctx, cmp.Or(cfg.checkEvery, checkEvery), c.log, c.metrics.rejected.Inc, c.probe, func(ctx context.Context) error { return Diagnose(ctx, cfg) })
	if c.etcd, err = clientv3.New(c.settings(ctx, &cfg, tlsConfig)); err != nil {
		c.stop()
		return nil, fmt.Errorf("open etcd client: %w", err)
	}
	c.etcd.KV = clientv3.NewKVFromKVClient(boundedKV{clientv3.RetryKVClient(c.etcd), maxPageBytes}, c.etcd)
	c.writes = clientv3.RetryKVClient(c.etcd)
	c.scope = scope{metrics: c.metrics}
	c.revision = newSharedRevision(ctx, c.readRevision)
	c.leases = newLeases(ctx, c.grantLease)
	c.leases.full = func(keys int) { c.metrics.leases.Observe(float64(keys)) }
	return c, nil
}

// settings returns the configuration of etcd's client.
func (c *Client) settings(ctx context.Context, cfg *Config, tlsConfig *tls.Config) clientv3.Config {
	return clientv3.Config{
		Context:              ctx,
		Endpoints:            cfg.Endpoints,
		TLS:                  tlsConfig,
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		// etcd's own limits apply.
		MaxCallSendMsgSize: math.MaxInt32,
		MaxCallRecvMsgSize: math.MaxInt32,
		// Errors are returned to the callers.
		Logger: zap.NewNop(),
		DialOptions: append(cfg.dialOptions(), grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: minReconnect, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxReconnect},
			MinConnectTimeout: dialTimeout,
		}), grpc.WithStaticStreamWindowSize(streamWindow), grpc.WithStaticConnWindowSize(connWindow),
			grpc.WithChainUnaryInterceptor(c.breaker.intercept, unsent), grpc.WithStatsHandler(sentHandler{})),
	}
}

// dialOptions has Config.Dial.
func (cfg *Config) dialOptions() []grpc.DialOption {
	if cfg.Dial == nil || strings.HasPrefix(cfg.Endpoints[0], "unix:") {
		return nil
	}
	return []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		return cfg.Dial(ctx, "tcp", address)
	})}
}

// Close closes the connection; requests in progress fail.
func (c *Client) Close() error {
	defer c.stop()
	if err := c.etcd.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close etcd client: %w", err)
	}
	return nil
}

// Healthy returns the error of a linearizable read, which needs a quorum.
func (c *Client) Healthy(ctx context.Context) error {
	_, err := c.revision.current(ctx)
	return err
}

// Check returns the error of Open.
func (cfg *Config) Check() error {
	if len(cfg.Endpoints) == 0 {
		return errors.New("--etcd-servers is missing, as in --etcd-servers=https://etcd-0:2379 (portico up starts an etcd of its own)")
	}
	err := checkEndpoints(cfg.Endpoints)
	if err == nil {
		_, err = cfg.tls()
	}
	if err != nil {
		return fmt.Errorf("open etcd client: %w", err)
	}
	return nil
}

func checkEndpoints(endpoints []string) error {
	first, _, _ := strings.Cut(endpoints[0], ":")
	for _, e := range endpoints {
		if err := CheckEndpoint(e); err != nil {
			return fmt.Errorf("endpoint %q %w", e, err)
		}
		if scheme, _, _ := strings.Cut(e, ":"); scheme != first {
			return fmt.Errorf("endpoints mix %s and %s", first, scheme)
		}
	}
	return nil
}

// CheckEndpoint returns what is wrong with an endpoint.
func CheckEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err == nil {
		switch u.Scheme {
		case "unix":
			if u.Host == "" && u.Path != "" {
				return nil
			}
		case "http", "https":
			if u.Host != "" && strings.Trim(u.Path, "/") == "" {
				return nil
			}
		}
	}
	return errors.New("must be https://host:port, http://host:port or unix:///path")
}

func (cfg *Config) tls() (*tls.Config, error) {
	if !strings.HasPrefix(cfg.Endpoints[0], "https:") {
		return nil, nil
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read CA file: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("CA file %s holds no certificate", cfg.CAFile)
		}
	}
	if cfg.CertFile == "" && cfg.KeyFile == "" {
		return out, nil
	}
	load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
		return &pair, err
	}
	if _, err := load(nil); err != nil {
		return nil, fmt.Errorf("load client certificate: %w", err)
	}
	out.GetClientCertificate = load
	return out, nil
}

// cleanPrefix returns the prefix with one slash at either end.
func cleanPrefix(prefix string) string {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	if p := strings.Trim(prefix, "/"); p != "" {
		return "/" + p + "/"
	}
	return "/"
}
