package kubelet

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/proxy"
	translator "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"portico/resource"
	"portico/resource/response"
	"portico/resource/rest"
)

// newOptions returns empty options of a connection.
type newOptions func() runtime.Object

// options is newOptions for a type.
func options[T any, P interface {
	*T
	runtime.Object
}]() runtime.Object {
	return P(new(T))
}

// extendWebSockets is the feature of nodes with kubelets that take the WebSocket protocols of
// clients. Other kubelets get SPDY.
const extendWebSockets = "ExtendWebSocketsToKubelet"

// stream returns the connection of exec, attach or portforward. The GET of a WebSocket needs
// the permission to create, as the POST of SPDY does.
func (c *Connector) stream(name string, opts newOptions) *rest.Connection {
	return &rest.Connection{
		Methods: []string{http.MethodGet, http.MethodPost}, Options: opts, Admitted: true,
		NeedsCreate: func(*http.Request) bool { return true },
		Serve: func(w http.ResponseWriter, r *http.Request, key resource.Key, opts runtime.Object) error {
			location, n, err := c.locateStream(r.Context(), name, key, opts)
			if err != nil {
				return err
			}
			w, r = bounded(w, withoutIdentity(r))
			c.serveStream(w, r, location, n, opts)
			return nil
		},
	}
}

// serveStream connects the client to the kubelet: SPDY as it is, and the protocols of
// WebSockets by translation to SPDY, or as they are to a kubelet that knows them.
func (c *Connector) serveStream(w http.ResponseWriter, r *http.Request, location *url.URL, n *node, opts runtime.Object) {
	transport := c.transports.get(toKubelet)
	var handler http.Handler = proxy.NewUpgradeAwareHandler(location, transport, false, true, responder{})
	if slices.Contains(n.features, extendWebSockets) {
		handler.ServeHTTP(w, r)
		return
	}
	switch o := opts.(type) {
	case *corev1.PodPortForwardOptions:
		handler = translator.NewTranslatingHandler(handler, translator.NewTunnelingHandler(handler), wsstream.IsWebSocketRequestWithTunnelingProtocol)
	case *corev1.PodExecOptions:
		handler = translated(handler, location, transport, translator.Options{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY})
	case *corev1.PodAttachOptions:
		handler = translated(handler, location, transport, translator.Options{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY})
	}
	handler.ServeHTTP(w, r)
}

func translated(handler http.Handler, location *url.URL, transport http.RoundTripper, streams translator.Options) http.Handler {
	return translator.NewTranslatingHandler(handler, translator.NewStreamTranslatorHandler(location, transport, 0, streams),
		wsstream.IsWebSocketRequestWithStreamCloseProtocol)
}

// responder responds to requests that failed before a connection was made.
type responder struct{}

// Error implements proxy.ErrorResponder.
func (responder) Error(w http.ResponseWriter, r *http.Request, err error) {
	response.WriteStatus(w, r, err)
}

// locateStream returns the URL of a stream at the kubelet of the pod's node.
func (c *Connector) locateStream(ctx context.Context, name string, key resource.Key, opts runtime.Object) (*url.URL, *node, error) {
	pod, err := c.pod(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	path, params, container := []string{name, pod.Namespace, pod.Name}, url.Values{}, ""
	flag := func(param string, on bool) {
		if on {
			params.Set(param, "1")
		}
	}
	switch o := opts.(type) {
	case *corev1.PodExecOptions:
		container = o.Container
		flag(corev1.ExecStdinParam, o.Stdin)
		flag(corev1.ExecStdoutParam, o.Stdout)
		flag(corev1.ExecStderrParam, o.Stderr)
		flag(corev1.ExecTTYParam, o.TTY)
		if len(o.Command) > 0 {
			params["command"] = o.Command
		}
	case *corev1.PodAttachOptions:
		container = o.Container
		flag(corev1.ExecStdinParam, o.Stdin)
		flag(corev1.ExecStdoutParam, o.Stdout)
		flag(corev1.ExecStderrParam, o.Stderr)
		flag(corev1.ExecTTYParam, o.TTY)
	case *corev1.PodPortForwardOptions:
		path[0] = "portForward"
		var ports []string
		for _, p := range o.Ports {
			ports = append(ports, strconv.Itoa(int(p)))
		}
		if len(ports) > 0 {
			params.Set(corev1.PortHeader, strings.Join(ports, ","))
		}
	}
	if name != "portforward" {
		if container, err = containerOf(pod, container); err != nil {
			return nil, nil, err
		}
		path = append(path, container)
	}
	if pod.Spec.NodeName == "" {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", key.Name))
	}
	n, err := c.node(ctx, pod.Spec.NodeName)
	if err != nil {
		return nil, nil, err
	}
	return &url.URL{Scheme: "https", Host: n.address(), Path: "/" + strings.Join(path, "/"), RawQuery: params.Encode()}, n, nil
}

// containerOf returns the container that a request names, or the only one of the pod.
func containerOf(pod *corev1.Pod, name string) (string, error) {
	var names []string
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		names = append(names, c.Name)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		names = append(names, c.Name)
	}
	switch n := len(pod.Spec.Containers); {
	case name != "" && !slices.Contains(names, name):
		return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
	case name != "":
		return name, nil
	case n == 1:
		return pod.Spec.Containers[0].Name, nil
	case n == 0:
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s", pod.Name))
	}
	return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %s", pod.Name, names))
}
