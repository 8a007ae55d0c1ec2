package kubelet

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/streaming/pkg/httpstream"
	netutils "k8s.io/utils/net"

	"portico/resource"
	"portico/resource/authn"
	"portico/resource/rest"
)

// locate returns where a proxy leads, without the path, and how it is reached. The name of
// the key is NAME, NAME:PORT or SCHEME:NAME:PORT.
type locate func(ctx context.Context, key resource.Key) (*url.URL, transportKind, error)

// proxy returns the connection of a proxy.
func (c *Connector) proxy(opts newOptions, to locate) *rest.Connection {
	return &rest.Connection{
		Methods: []string{
			http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead, http.MethodOptions,
		},
		Options: opts, Path: true, Admitted: true,
		NeedsCreate: func(r *http.Request) bool {
			// A kubelet runs commands over upgraded connections.
			act := resource.ActionFrom(r.Context())
			return act.Resource == "nodes" && httpstream.IsUpgradeRequest(r)
		},
		Serve: func(w http.ResponseWriter, r *http.Request, key resource.Key, opts runtime.Object) error {
			if err := refuseOverride(r.Header); err != nil {
				return err
			}
			location, kind, err := to(r.Context(), key)
			if err != nil {
				return err
			}
			location.Path = utilnet.JoinPreservingTrailingSlash(location.Path, pathOf(opts))
			location.RawQuery = r.URL.RawQuery // for an upgrade, which otherwise has none
			w, r = bounded(w, forProxy(r))
			proxy.NewUpgradeAwareHandler(location, c.transports.get(kind), true, false, responder{}).ServeHTTP(w, r)
			return nil
		},
	}
}

func pathOf(opts runtime.Object) string {
	switch o := opts.(type) {
	case *corev1.PodProxyOptions:
		return o.Path
	case *corev1.NodeProxyOptions:
		return o.Path
	case *corev1.ServiceProxyOptions:
		return o.Path
	}
	return ""
}

// refuseOverride refuses headers that change the method of a request behind the one that was
// authorized.
func refuseOverride(h http.Header) error {
	for name := range h {
		switch authn.FoldHeaderName(name) {
		case "x-http-method-override", "x-http-method", "x-method-override":
			return apierrors.NewBadRequest(fmt.Sprintf("the header %s is not permitted: requests are authorized by their method", name))
		}
	}
	return nil
}

// withoutIdentity returns the request without the headers by which the gateway names the
// user to this server.
func withoutIdentity(r *http.Request) *http.Request {
	out := r.Clone(r.Context())
	authn.StripFrontProxyHeaders(out.Header)
	out.Header.Del("Authorization")
	return out
}

// forProxy returns the request as it is proxied: without the identity, and with the host that
// the client named to the gateway.
func forProxy(r *http.Request) *http.Request {
	out := withoutIdentity(r)
	if host := r.Header.Get("X-Forwarded-Host"); host != "" {
		out.Host = host
	}
	return out
}

// locatePod leads to the address of a pod, at the port that the client names or the first
// one of its containers.
func (c *Connector) locatePod(ctx context.Context, key resource.Key) (*url.URL, transportKind, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(key.Name)
	if !ok {
		return nil, proxyToPod, apierrors.NewBadRequest(fmt.Sprintf("invalid pod request %q", key.Name))
	}
	pod, err := c.pod(ctx, resource.Key{Namespace: key.Namespace, Name: name})
	if err != nil {
		return nil, proxyToPod, err
	}
	for _, container := range pod.Spec.Containers {
		if port == "" && len(container.Ports) > 0 {
			port = strconv.Itoa(int(container.Ports[0].ContainerPort))
		}
	}
	address := pod.Status.PodIP
	if len(pod.Status.PodIPs) > 0 {
		address = pod.Status.PodIPs[0].IP
	}
	if ip, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(address)); !ok || c.transports.check(proxyToPod, ip) != nil {
		return nil, proxyToPod, apierrors.NewBadRequest(errNotAllowed.Error())
	}
	host := net.JoinHostPort(address, port)
	if port == "" {
		host = host[:len(host)-1]
	}
	return &url.URL{Scheme: scheme, Host: host}, proxyToPod, nil
}

// locateNode leads to the kubelet of a node, or to another port of the node.
func (c *Connector) locateNode(ctx context.Context, key resource.Key) (*url.URL, transportKind, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(key.Name)
	if !ok {
		return nil, proxyToKubelet, apierrors.NewBadRequest(fmt.Sprintf("invalid node request %q", key.Name))
	}
	n, err := c.node(ctx, name)
	if err != nil {
		return nil, proxyToKubelet, err
	}
	addresses, err := net.DefaultResolver.LookupIPAddr(ctx, n.host)
	if err != nil {
		return nil, proxyToKubelet, apierrors.NewBadRequest(err.Error())
	}
	if len(addresses) == 0 {
		return nil, proxyToKubelet, apierrors.NewBadRequest("no addresses for hostname")
	}
	for _, a := range addresses {
		if ip, ok := netip.AddrFromSlice(a.IP); !ok || c.transports.check(proxyToKubelet, ip) != nil {
			return nil, proxyToKubelet, apierrors.NewBadRequest(errNotAllowed.Error())
		}
	}
	if port == "" || port == n.port {
		return &url.URL{Scheme: "https", Host: n.address()}, proxyToKubelet, nil
	}
	return &url.URL{Scheme: scheme, Host: net.JoinHostPort(n.host, port)}, proxyToPod, nil
}
