package kubelet

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"portico/resource"
	"portico/resource/egress"
)

// log serves the log of a container, as text or to a WebSocket. A pod without a node has none:
// 204.
func (c *Connector) log(w http.ResponseWriter, r *http.Request, key resource.Key, opts runtime.Object) error {
	o := opts.(*corev1.PodLogOptions)
	if errs := validateLogOptions(o); len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "PodLogOptions"}, key.Name, errs)
	}
	location, err := c.locateLog(r.Context(), key, o)
	if err != nil {
		return err
	}
	transport := c.transports.get(toKubelet)
	if o.InsecureSkipTLSVerifyBackend {
		transport = c.transports.get(toKubeletUnverified)
	}
	if location == nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	out, err := fetchLog(r.Context(), transport, location, key.Name)
	if err != nil {
		return err
	}
	defer out.Close()
	if wsstream.IsWebSocketRequest(r) {
		serveWebSocket(w, r, out)
		return nil
	}
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusOK)
	to := io.Writer(w)
	if o.Follow {
		to = &flushing{w, http.NewResponseController(w)}
		_ = http.NewResponseController(w).Flush()
	}
	if _, err := io.Copy(to, out); err != nil {
		panic(http.ErrAbortHandler) // so that the client sees that the log is not complete
	}
	return nil
}

// maxErrorText is how much of the text of a kubelet's error is read, in bytes.
const maxErrorText = 50000

// fetchLog returns the log at a location, for the pod of a name. It follows no redirect.
func fetchLog(ctx context.Context, transport http.RoundTripper, location *url.URL, name string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, location.String(), nil)
	if err != nil {
		return nil, err
	}
	res, err := egress.Client(transport, 0).Do(r)
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= http.StatusOK && res.StatusCode <= http.StatusPartialContent {
		return res.Body, nil
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxErrorText))
	switch {
	case err != nil:
		return nil, apierrors.NewInternalError(err)
	case res.StatusCode == http.StatusInternalServerError:
		return nil, apierrors.NewInternalError(errors.New(string(text)))
	case res.StatusCode == http.StatusBadRequest:
		return nil, apierrors.NewBadRequest(string(text))
	}
	return nil, apierrors.NewGenericServerResponse(res.StatusCode, "", schema.GroupResource{Resource: "pods/log"}, name, string(text), 0, false)
}

// base64Protocol is the WebSocket protocol of text messages; others have binary ones.
const base64Protocol = "base64.binary.k8s.io"

// serveWebSocket copies the log to messages after an empty one, until the log ends or the
// client closes the connection. What the client sends is dropped.
func serveWebSocket(w http.ResponseWriter, r *http.Request, out io.ReadCloser) {
	websocket.Server{
		Handshake: func(cfg *websocket.Config, _ *http.Request) error {
			i := slices.IndexFunc(cfg.Protocol, func(p string) bool { return p == base64Protocol || p == "binary.k8s.io" })
			switch {
			case i >= 0:
				cfg.Protocol = cfg.Protocol[i : i+1]
			case len(cfg.Protocol) > 0:
				return websocket.ErrBadWebSocketProtocol
			}
			return nil
		},
		Handler: func(ws *websocket.Conn) {
			defer ws.Close()
			ws.MaxPayloadBytes = maxMessage
			go func() {
				defer out.Close() // ends the copy
				for dropped := []byte(nil); websocket.Message.Receive(ws, &dropped) == nil; {
				}
			}()
			text := slices.Contains(ws.Config().Protocol, base64Protocol)
			for buffer, n, err := make([]byte, maxMessage), 0, error(nil); ; n, err = out.Read(buffer) {
				var message any = buffer[:n]
				if text {
					message = base64.StdEncoding.EncodeToString(buffer[:n])
				}
				if (n > 0 || err == nil) && websocket.Message.Send(ws, message) != nil || err != nil {
					return
				}
			}
		},
	}.ServeHTTP(w, r)
}

// maxMessage is the largest message in bytes, in both directions.
const maxMessage = 2048

// flushing flushes after every write.
type flushing struct {
	http.ResponseWriter
	control *http.ResponseController
}

// Write implements io.Writer.
func (f *flushing) Write(p []byte) (int, error) {
	n, err := f.ResponseWriter.Write(p)
	if err == nil {
		err = f.control.Flush()
	}
	return n, err
}

func validateLogOptions(o *corev1.PodLogOptions) field.ErrorList {
	var errs field.ErrorList
	if n := o.TailLines; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(field.NewPath("tailLines"), *n, apivalidation.IsNegativeErrorMsg))
	}
	if n := o.LimitBytes; n != nil && *n < 1 {
		errs = append(errs, field.Invalid(field.NewPath("limitBytes"), *n, "must be greater than 0"))
	}
	switch n := o.SinceSeconds; {
	case n != nil && o.SinceTime != nil:
		errs = append(errs, field.Forbidden(field.NewPath(""), "at most one of `sinceTime` or `sinceSeconds` may be specified"))
	case n != nil && *n < 1:
		errs = append(errs, field.Invalid(field.NewPath("sinceSeconds"), *n, "must be greater than 0"))
	}
	if o.Stream != nil {
		errs = append(errs, field.Forbidden(field.NewPath("stream"), "may not be specified"))
	}
	return errs
}

// locateLog returns the URL of a log at the kubelet of the pod's node; nil for a pod without a
// node.
func (c *Connector) locateLog(ctx context.Context, key resource.Key, o *corev1.PodLogOptions) (*url.URL, error) {
	pod, err := c.pod(ctx, key)
	if err != nil {
		return nil, err
	}
	container, err := containerOf(pod, o.Container)
	if err != nil || pod.Spec.NodeName == "" {
		return nil, err
	}
	n, err := c.node(ctx, pod.Spec.NodeName)
	if err != nil {
		return nil, err
	}
	params := url.Values{}
	for name, on := range map[string]bool{"follow": o.Follow, "previous": o.Previous, "timestamps": o.Timestamps} {
		if on {
			params.Set(name, "true")
		}
	}
	for name, n := range map[string]*int64{"sinceSeconds": o.SinceSeconds, "tailLines": o.TailLines, "limitBytes": o.LimitBytes} {
		if n != nil {
			params.Set(name, strconv.FormatInt(*n, 10))
		}
	}
	if o.SinceTime != nil {
		params.Set("sinceTime", o.SinceTime.Format(time.RFC3339))
	}
	return &url.URL{
		Scheme: "https", Host: n.address(), Path: "/containerLogs/" + pod.Namespace + "/" + pod.Name + "/" + container, RawQuery: params.Encode(),
	}, nil
}
