package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// openTarget returns connections to the server that the kubeconfig names.
func openTarget(ctx context.Context, o *options) (*pool, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	u, err := url.Parse(cfg.Host)
	if err != nil || u.Scheme != "https" {
		return nil, fmt.Errorf("read kubeconfig: the server is %q; it must be https://host:port", cfg.Host)
	}
	if err := refuseRemote(ctx, u.Hostname()); err != nil {
		return nil, err
	}
	conf, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	if conf == nil {
		conf = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return newPool(strings.TrimSuffix(cfg.Host, "/"), o.connections, conf, func(rt http.RoundTripper) (http.RoundTripper, error) {
		return rest.HTTPWrappersForConfig(cfg, rt)
	})
}

// refuseRemote returns an error unless host is this machine: a load that hits
// somebody else's server by mistake does harm.
func refuseRemote(ctx context.Context, host string) error {
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return fmt.Errorf("find address of %s: %w", host, err)
	}
	for _, a := range addrs {
		if !isLoopback(a) {
			return fmt.Errorf("%s is at %v, which is not a loopback address; only this machine is loaded", host, a)
		}
	}
	return nil
}

func isLoopback(a netip.Addr) bool { return a.Unmap().IsLoopback() }
