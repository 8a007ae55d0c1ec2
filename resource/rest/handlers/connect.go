package handlers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/resource"
	"portico/resource/rest"
)

// connect serves a request for a rest.Connection, after the checks that are common to all.
func (a *API) connect(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource, sub *rest.Subresource) error {
	c := sub.Connect
	if !slices.Contains(c.Methods, r.Method) {
		return methodNotAllowed(act, res)
	}
	query := r.URL.Query()
	if c.Admitted && len(query["dryRun"]) > 0 {
		return apierrors.NewBadRequest("dryRun is not supported")
	}
	key := keyOf(act, res)
	if err := checkKey(key); err != nil {
		return err
	}
	opts := c.Options()
	if c.Path {
		query.Set("path", subpath(act))
	}
	if err := decodeQuery(query, opts); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if c.NeedsCreate != nil && act.Verb != "create" && c.NeedsCreate(r) {
		if err := a.mayCreate(r.Context(), act); err != nil {
			return err
		}
	}
	if err := a.admitConnect(r.Context(), act, res, sub, key, opts); err != nil {
		return err
	}
	return c.Serve(hijackable{w}, r, key, opts)
}

// subpath returns the path behind the subresource: "" or with a leading slash, and with a
// trailing slash if the path of the request has one.
func subpath(act *resource.Action) string {
	path := strings.Join(act.Rest, "/")
	if path != "" {
		path = "/" + path
	}
	if strings.HasSuffix(act.Path, "/") && !strings.HasSuffix(path, "/") {
		path += "/"
	}
	return path
}

// mayCreate checks the permission to create.
func (a *API) mayCreate(ctx context.Context, act *resource.Action) error {
	if a.cfg.Authorize == nil {
		return apierrors.NewInternalError(errors.New("no authorizer available"))
	}
	create := *act
	create.Verb = "create"
	return a.cfg.Authorize(ctx, &create)
}

// admitConnect runs admission for a connection, which it sees as the operation CONNECT with
// the options as object.
func (a *API) admitConnect(ctx context.Context, act *resource.Action, res *rest.Resource, sub *rest.Subresource, key resource.Key, opts runtime.Object) error {
	if !sub.Connect.Admitted || a.cfg.Admission == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeCap)
	defer cancel()
	opts.GetObjectKind().SetGroupVersionKind(sub.GVK)
	attrs := &rest.Attributes{Action: act, Kind: res.Kind, Operation: rest.Connect, Key: key, Object: opts}
	if err := a.cfg.Admission.Mutate(ctx, attrs); err != nil {
		return explain(err)
	}
	return explain(a.cfg.Admission.Validate(ctx, attrs))
}

// decodeQuery sets the fields of into, a pointer to a struct, from the parameters of their
// JSON names, as the generated conversions of kube-apiserver do. Other parameters are
// ignored.
func decodeQuery(query url.Values, into runtime.Object) error {
	v := reflect.ValueOf(into).Elem()
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		values := query[name]
		if name == "" || len(values) == 0 {
			continue
		}
		if err := decodeValues(values, v.Field(i).Addr().Interface()); err != nil {
			return err
		}
	}
	return nil
}

func decodeValues(values []string, to any) error {
	switch to := to.(type) {
	case *string:
		*to = values[0]
	case **string:
		*to = &values[0]
	case *[]string:
		*to = values
	case *bool:
		return runtime.Convert_Slice_string_To_bool(&values, to, nil)
	case **int64:
		return runtime.Convert_Slice_string_To_Pointer_int64(&values, to, nil)
	case *[]int32:
		return metav1.Convert_Slice_string_To_Slice_int32(&values, to, nil)
	case **metav1.Time:
		return metav1.Convert_Slice_string_To_Pointer_v1_Time(&values, to, nil)
	default:
		return fmt.Errorf("parameters of type %T are not supported", to)
	}
	return nil
}

// hijackable is a response writer as libraries expect it: its own methods flush and hijack. A
// hijacked connection has no deadline.
type hijackable struct{ http.ResponseWriter }

// Unwrap is for http.ResponseController.
func (w hijackable) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush implements http.Flusher.
func (w hijackable) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Hijack implements http.Hijacker.
func (w hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, rw, nil
}
