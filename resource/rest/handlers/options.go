package handlers

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/rest"
)

// queryOptions are the ListOptions of a query (docs/wire.md 5.1) of a list, watch or
// deletecollection.
type queryOptions struct {
	labels, fields string
	revision       string
	match          metav1.ResourceVersionMatch
	cont           string
	// limit is 0 for no limit.
	limit int64
	// timeout is 0 for none and negative if it has passed.
	timeout       time.Duration
	bookmarks     bool
	initialEvents *bool
}

// parseQuery parses the options. Errors are 400s.
func parseQuery(q url.Values) (*queryOptions, error) {
	limit, err := queryInt(q, "limit")
	if err != nil {
		return nil, err
	}
	seconds, err := queryInt(q, "timeoutSeconds")
	if err != nil {
		return nil, err
	}
	// Bounded so that the conversion to a Duration cannot overflow.
	const year = 365 * 24 * 3600
	o := &queryOptions{
		labels:    q.Get("labelSelector"),
		fields:    q.Get("fieldSelector"),
		revision:  q.Get("resourceVersion"),
		match:     metav1.ResourceVersionMatch(q.Get("resourceVersionMatch")),
		cont:      q.Get("continue"),
		limit:     max(limit, 0),
		timeout:   time.Duration(min(max(seconds, -1), year)) * time.Second,
		bookmarks: queryBool(q, "allowWatchBookmarks"),
	}
	if _, ok := q["sendInitialEvents"]; ok {
		v := queryBool(q, "sendInitialEvents")
		o.initialEvents = &v
	}
	return o, nil
}

// queryInt returns a parameter, or 0 if there is none. One that is not a number, also an
// empty one, is a 400.
func queryInt(q url.Values, name string) (int64, error) {
	if !q.Has(name) {
		return 0, nil
	}
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest(err.Error())
	}
	return n, nil
}

// queryBool reports whether a parameter is present and neither 0 nor false.
func queryBool(q url.Values, name string) bool {
	values, ok := q[name]
	if !ok {
		return false
	}
	return len(values) == 0 || (values[0] != "0" && !strings.EqualFold(values[0], "false"))
}

// listOptions reads and checks the options of a list or a deletion of a
// collection.
func listOptions(r *http.Request, act *resource.Action, res *rest.Resource) (resource.ListOptions, error) {
	var none resource.ListOptions
	o, err := parseQuery(r.URL.Query())
	if err != nil {
		return none, err
	}
	if err := invalidOptions(o.validateList()); err != nil {
		return none, err
	}
	sel, err := res.Selector(act.Version, o.labels, o.fields, "")
	if err != nil {
		return none, err
	}
	opts := resource.ListOptions{Namespace: act.Namespace, Selector: sel, Limit: o.limit, Continue: o.cont}
	if !res.Namespaced {
		opts.Namespace = ""
	}
	if err := o.listAt(&opts); err != nil {
		return none, err
	}
	return opts, nil
}

// listAt sets the point in history of a list (docs/wire.md 5.2).
func (o *queryOptions) listAt(opts *resource.ListOptions) error {
	rev, err := parseRevision(o.revision)
	if err != nil {
		return err
	}
	switch {
	case o.cont != "":
		if rev != 0 {
			return apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
	case o.revision == "":
		opts.At.Freshness = resource.Latest
	case rev == 0:
		// The state is not kept for further pages, so that the list is complete.
		opts.At.Freshness, opts.Limit = resource.Any, 0
	case o.match == metav1.ResourceVersionMatchExact || (o.match == "" && o.limit > 0):
		opts.At = resource.At{Freshness: resource.Exact, Revision: rev}
	default:
		opts.At = resource.At{Freshness: resource.NotOlderThan, Revision: rev}
	}
	return nil
}

// watchOptions returns the options of a watch.
func (o *queryOptions) watchOptions(act *resource.Action, res *rest.Resource) (resource.WatchOptions, error) {
	var none resource.WatchOptions
	rev, err := parseRevision(o.revision)
	if err != nil {
		return none, err
	}
	// A watch without a resourceVersion begins with the current state.
	initial := rev == 0
	if o.initialEvents != nil {
		initial = *o.initialEvents
	}
	if err := invalidOptions(o.validateWatch()); err != nil {
		return none, err
	}
	name := ""
	if act.InPath {
		name = act.Name
	}
	sel, err := res.Selector(act.Version, o.labels, o.fields, name)
	if err != nil {
		return none, err
	}
	opts := resource.WatchOptions{Selector: sel, Bookmarks: o.bookmarks, InitialEvents: initial}
	if res.Namespaced {
		opts.Namespace = act.Namespace
	}
	switch {
	case !initial:
		opts.Since = rev
	case o.revision == "":
		opts.At.Freshness = resource.Latest
	case rev == 0:
		opts.At.Freshness = resource.Any
	default:
		opts.At = resource.At{Freshness: resource.NotOlderThan, Revision: rev}
	}
	return opts, nil
}

// watchList reports whether the watch replaces a list: it begins with initial events, and a
// bookmark marks their end (docs/wire.md 5.6).
func (o *queryOptions) watchList() bool {
	return o.initialEvents != nil && *o.initialEvents && o.bookmarks
}

func (o *queryOptions) validateList() field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("resourceVersionMatch")
	if o.match != "" {
		if o.revision == "" {
			errs = append(errs, field.Forbidden(path, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
		}
		if o.cont != "" {
			errs = append(errs, field.Forbidden(path, "resourceVersionMatch is forbidden when continue is provided"))
		}
		if o.match != metav1.ResourceVersionMatchExact && o.match != metav1.ResourceVersionMatchNotOlderThan {
			errs = append(errs, field.NotSupported(path, o.match,
				[]metav1.ResourceVersionMatch{"", metav1.ResourceVersionMatchExact, metav1.ResourceVersionMatchNotOlderThan}))
		}
		if o.match == metav1.ResourceVersionMatchExact && isZero(o.revision) {
			errs = append(errs, field.Forbidden(path, `resourceVersionMatch "exact" is forbidden for resourceVersion "0"`))
		}
	}
	if o.initialEvents != nil {
		errs = append(errs, field.Forbidden(field.NewPath("sendInitialEvents"), "sendInitialEvents is forbidden for list"))
	}
	return errs
}

func (o *queryOptions) validateWatch() field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("resourceVersionMatch")
	if o.initialEvents != nil && o.match != metav1.ResourceVersionMatchNotOlderThan {
		errs = append(errs, field.Forbidden(path, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
	}
	if o.match == "" {
		return errs
	}
	if o.initialEvents == nil {
		errs = append(errs, field.Forbidden(path, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
	}
	if o.match != metav1.ResourceVersionMatchNotOlderThan {
		errs = append(errs, field.NotSupported(path, o.match, []metav1.ResourceVersionMatch{metav1.ResourceVersionMatchNotOlderThan}))
	}
	if o.cont != "" {
		errs = append(errs, field.Forbidden(path, "resourceVersionMatch is forbidden when continue is provided"))
	}
	return errs
}

// invalidOptions is the 422 for errors in ListOptions; nil for none.
func invalidOptions(errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
}

// parseRevision parses a resourceVersion; "" and "0" are 0. The error is a 400.
func parseRevision(text string) (int64, error) {
	if text == "" || text == "0" {
		return 0, nil
	}
	rev, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, apierrors.NewBadRequest("invalid resource version: " +
			field.Invalid(field.NewPath("resourceVersion"), text, err.Error()).Error())
	}
	return int64(rev), nil
}

// isZero reports whether a resourceVersion is not empty and 0.
func isZero(text string) bool {
	rev, err := parseRevision(text)
	return text != "" && err == nil && rev == 0
}

// refuseExport is the 400 for the removed parameter export (docs/wire.md 1.3).
func refuseExport(q url.Values) error {
	if queryBool(q, "export") {
		return apierrors.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported")
	}
	return nil
}
