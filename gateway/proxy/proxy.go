package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/gateway/upstream"
	"portico/gateway/upstream/retry"
	"portico/resource"
	"portico/resource/audit"
	"portico/resource/authn"
	"portico/resource/response"
	"portico/resource/serve/filter"
	"portico/resource/serve/inflight"
)

// Sizes of the copy buffers, in bytes. A connection that has left HTTP holds its buffers
// for as long as it lasts; others only while there is something to copy.
const (
	copyBuffer    = 32 << 10
	upgradeBuffer = 4 << 10
)

// buffers is a pool of buffers of one size. It implements httputil.BufferPool.
type buffers struct{ pool sync.Pool }

func newBuffers(size int) *buffers {
	return &buffers{pool: sync.Pool{New: func() any { b := make([]byte, size); return &b }}}
}

func (b *buffers) Get() []byte  { return *b.pool.Get().(*[]byte) }
func (b *buffers) Put(p []byte) { b.pool.Put(&p) }

// Maker makes the reverse proxies of all servers.
type Maker struct {
	copying, upgraded *buffers
	logger            *slog.Logger
}

func NewMaker(logger *slog.Logger) *Maker {
	return &Maker{copying: newBuffers(copyBuffer), upgraded: newBuffers(upgradeBuffer), logger: logger}
}

// build returns the reverse proxies to one server: for requests with a deadline, for
// long-running ones, and for those that leave HTTP.
func (p *Maker) build(up *upstream.Upstream) (short, long, upgrade http.Handler) {
	common := httputil.ReverseProxy{
		Rewrite:      func(pr *httputil.ProxyRequest) { rewrite(pr, up.Base()) },
		ErrorHandler: p.fail,
		ErrorLog:     slog.NewLogLogger(p.logger.Handler(), slog.LevelDebug),
	}
	s, l, u := common, common, common
	// The bodies that ModifyResponse makes flush.
	s.Transport, s.BufferPool, s.ModifyResponse = up.Short(), p.copying, inPieces
	l.Transport, l.BufferPool, l.ModifyResponse = up.Long(), newBuffers(1), p.relayed
	// Only HTTP/1.1 can be switched to another protocol.
	u.Transport, u.BufferPool, u.ModifyResponse, u.FlushInterval = up.Upgrade(), p.upgraded, checkUpgraded, -1
	return &s, &l, upgradeHandler{&u}
}

// Upstream is one server behind the gateway and the reverse proxies to it. It exists
// while a route leads to it; its endpoints may change meanwhile.
type Upstream struct {
	*upstream.Upstream
	// short answers requests with a deadline, long those without, and upgrade those
	// that leave HTTP.
	short, long, upgrade http.Handler
}

// NewUpstream returns the reverse proxies to a server.
func NewUpstream(cfg upstream.Config, m *Maker) *Upstream {
	u := &Upstream{Upstream: upstream.New(cfg)}
	u.short, u.long, u.upgrade = m.build(u.Upstream)
	return u
}

// Pass sends a request with a deadline to the server. It is not counted or logged.
func (u *Upstream) Pass(w http.ResponseWriter, r *http.Request) { u.short.ServeHTTP(w, r) }

// forServers are headers that are forwarded even if the client names them in its
// Connection header: the gateway or audit has read them, and a server without them would
// read the same body otherwise.
var forServers = [...]string{"Accept", "Accept-Encoding", "Audit-Id", "Content-Encoding", "Content-Type", "User-Agent"}

// rewrite addresses the request to the server, leaves in its header what the server gets, and
// adds the user. Filters have removed the credentials that the gateway reads before.
func rewrite(pr *httputil.ProxyRequest, base *url.URL) {
	pr.Out.URL.Scheme, pr.Out.URL.Host = base.Scheme, base.Host
	pr.Out.Host = base.Host
	h := pr.Out.Header
	act, upgrade := actionOf(pr.In)
	switch proxied := proxiedRequestFrom(pr.In.Context()); {
	case proxied != nil && proxied.route.REST != nil: // REST.header has left what it gets
	case isProxiedObject(act):
		stripForObject(h)
	default:
		keepKubernetes(h)
	}
	delete(h, audit.HeaderAnnotations)
	if returnsAnnotations(pr.In, act) {
		audit.RequestAnnotations(pr.In.Context(), h)
	}
	if act != nil && act.User != nil {
		authn.SetFrontProxyHeaders(h, act.User)
		if restRequestOf(pr.In) == nil {
			authn.AddConstraint(h, act.User)
		}
	} else {
		authn.StripFrontProxyHeaders(h)
	}
	if !upgrade {
		delete(h, "Upgrade")
		delete(h, "Connection")
	}
	setForwarded(h, pr.In)
	if pr.In.Header["Connection"] != nil {
		for _, name := range forServers {
			if values := pr.In.Header[name]; values != nil {
				h[name] = values
			}
		}
	}
	// Trailers were not part of any decision about the request.
	pr.Out.Trailer = nil
}

// returnsAnnotations reports whether the response of a request may have audit annotations: the route is
// static, and the response has no header of a kubelet, a pod, a node or a Service.
func returnsAnnotations(r *http.Request, act *resource.Action) bool {
	proxied := proxiedRequestFrom(r.Context())
	if proxied == nil || !proxied.route.Static || act == nil || isProxiedObject(act) {
		return false
	}
	return !slices.Contains([]string{"attach", "exec", "portforward"}, act.Subresource)
}

// actionOf returns the action of a request, and whether it asks for another protocol.
func actionOf(r *http.Request) (act *resource.Action, upgrade bool) {
	if h := proxiedRequestFrom(r.Context()); h != nil && h.act != nil {
		return h.act, h.upgrade
	}
	return resource.ActionFrom(r.Context()), upgrades(r.Header)
}

// setForwarded adds the X-Forwarded headers. The client's X-Forwarded-For is kept and
// appended to, as kube-aggregator does: it is informational.
func setForwarded(h http.Header, in *http.Request) {
	proto := "http"
	if in.TLS != nil {
		proto = "https"
	}
	uri := in.RequestURI // the path for a REST backend differs
	if !strings.HasPrefix(uri, "/") {
		uri = in.URL.RequestURI()
	}
	values := [4]string{"", in.Host, proto, uri}
	h["X-Forwarded-Host"], h["X-Forwarded-Proto"], h["X-Forwarded-Uri"] = values[1:2:2], values[2:3:3], values[3:4:4]
	client, _, err := net.SplitHostPort(in.RemoteAddr)
	if err != nil {
		delete(h, "X-Forwarded-For")
		return
	}
	if prior := in.Header["X-Forwarded-For"]; len(prior) > 0 {
		client = strings.Join(prior, ", ") + ", " + client
	}
	values[0] = client
	h["X-Forwarded-For"] = values[:1:1]
}

// errRedirect is a redirect of a server: following it, the gateway could reach what the
// client may not.
var errRedirect = errors.New("the backend attempted to redirect this request, which is not permitted")

func modifyResponse(res *http.Response) error {
	act, _ := actionOf(res.Request)
	object := isProxiedObject(act) // a redirect of it is for the client, as with kube-apiserver
	if res.StatusCode >= 300 && res.StatusCode < 400 && res.Header.Get("Location") != "" && !isNewHash(res) && !redirectsWithin(res) && !object {
		return errRedirect
	}
	if proxied := proxiedRequestFrom(res.Request.Context()); object || proxied == nil || !proxied.route.Static {
		confine(res.Header)
	}
	if returnsAnnotations(res.Request, act) && res.StatusCode != http.StatusSwitchingProtocols {
		audit.AddAnnotations(res.Request.Context(), res.Header)
	}
	for name := range res.Header {
		if isGateways(name) {
			delete(res.Header, name)
		}
	}
	if filterTrailers(res.Trailer); len(res.Trailer) > 0 {
		// An HTTP/1.1 answer with a Content-Length has no trailers.
		res.Header.Del("Content-Length")
	}
	if res.StatusCode == http.StatusNoContent {
		// It must have none (RFC 9110, 8.6): an HTTP/2 client reports a malformed answer.
		res.Header.Del("Content-Length")
	}
	// The server has counted the request.
	filter.CountedElsewhere(res.Request.Context())
	return nil
}

// isNewHash reports whether a redirect leads from an OpenAPI document to the same
// document with its present hash. The client follows it to the gateway, with its own
// permissions.
func isNewHash(res *http.Response) bool {
	path := res.Request.URL.Path
	return strings.HasPrefix(path, "/openapi/v3/") && strings.HasPrefix(res.Header.Get("Location"), path+"?hash=")
}

// fail answers a request for which there is no answer of the server.
func (p *Maker) fail(w http.ResponseWriter, r *http.Request, err error) {
	var body *upstream.BodyError
	var ended *apierrors.StatusError
	switch {
	case errors.As(err, &body) && errors.As(body.Err, &ended): // the filters do not wait for it any longer
		if r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close") // its rest may still come
		}
		response.WriteStatus(w, r, ended)
		return
	case errors.Is(err, errRedirect):
		response.WriteStatus(w, r, apierrors.NewGenericServerResponse(http.StatusBadGateway, r.Method, schema.GroupResource{}, "", err.Error(), 0, false))
		return
	case errors.Is(context.Cause(r.Context()), context.DeadlineExceeded):
		response.WriteStatus(w, r, apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0))
		return
	case errors.Is(context.Cause(r.Context()), inflight.ErrShuttingDown):
		response.WriteStatus(w, r, resource.Unavailable("the gateway is shutting down", RetryAfter))
		return
	case r.Context().Err() != nil:
		// The client has gone.
		panic(http.ErrAbortHandler)
	}
	var upgrade *upgradeError
	var overload *upstream.OverloadError
	var line *upstream.RequestLineError
	switch {
	case errors.As(err, &line):
		response.WriteStatus(w, r, apierrors.NewBadRequest(line.Error()))
		return
	case errors.As(err, &overload):
		response.WriteStatus(w, r, apierrors.NewTooManyRequests(overload.Error(), RetryAfter))
		return
	case errors.As(err, &body):
		response.WriteStatus(w, r, apierrors.NewBadRequest(body.Error()))
		return
	case errors.As(err, &upgrade):
		response.WriteStatus(w, r, resource.Unavailable(upgrade.Error(), 0))
		return
	}
	p.logger.Info("request to server failed", "path", r.URL.Path, "err", err)
	response.WriteStatus(w, r, unreachable(r, err))
}

// unreachable is the 503 for a request that failed on its way to the server. It says
// so if the server may have carried the request out: some of it was sent, and the
// method is not safe or the request asks for another protocol, as exec does. It has no
// Retry-After, like any answer for the API of a server that is away.
func unreachable(r *http.Request, err error) error {
	text := fmt.Sprintf("error trying to reach service: %v", err)
	if upstream.IsUnprocessed(err) || retry.Safe(r.Method) && !upgrades(r.Header) {
		return resource.Unavailable(text, 0)
	}
	return resource.Unavailable(text+"; it is not known whether the request was carried out", 0)
}
